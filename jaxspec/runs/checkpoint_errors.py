"""What Orbax raises where a checkpoint cannot be read or written, as what it means to a user."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

from jaxspec.errors import InputError, one_line
from jaxspec.settings.coercion import shown

__all__ = ["damage_told", "refusal_told"]

#: In messages of TensorStore, which raises ValueError for everything; earlier versions have the words alone.
_CODE = re.compile(r"os_error_code='(\d+)'")

#: Of the reads of other arrays, which TensorStore's threads end after the first one has failed, and print with their stacks.
_TOO_LATE = "Event loop is closed"

#: Refusals of a disk that are known by their words.
_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES)

# Orbax reports every save at INFO and WARNING, and at ERROR prints the stack of what it also raises.
logging.getLogger("absl").setLevel(logging.CRITICAL)


@contextlib.contextmanager
def damage_told(what: str, path: Any) -> Iterator[None]:
    """Within the block, files that Orbax cannot read are bad input, in one line; what comes late of it is not printed.

    Args:
        what: lies in the folder `path`.
    Raises:
        InputError: they are damaged.
    """
    before = sys.unraisablehook
    sys.unraisablehook = lambda late: None if str(late.exc_value) == _TOO_LATE else before(late)
    try:
        yield
        sys.unraisablehook = before
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = one_line(error)
        raise InputError(
            f"{what} {str(path)!r} is damaged ({type(error).__name__}: {shown(reason)}); remove that folder, and the same "
            "command computes it again"
        ) from error


@contextlib.contextmanager
def refusal_told(path: Any) -> Iterator[None]:
    """Within the block, a disk that refuses what Orbax writes into a folder is the operating system's own error.

    Raises:
        OSError: the disk is full or cannot be written; its file is `path`.
    """
    try:
        yield
    except ValueError as error:
        if (number := _refusal(str(error))) is None:
            raise
        raise OSError(number, os.strerror(number), str(path)) from error


def _refusal(message: str) -> int | None:
    """The number of the operating system's error that a message tells of; None: of none."""
    if code := _CODE.search(message):
        return int(code[1])
    return next((number for number in _REFUSALS if os.strerror(number) in message), None)
