"""The lock of a run directory: one process writes in it at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import NamedTuple, TextIO

from jaxspec.errors import InputError

__all__ = ["Lock", "lock_directory"]


class Lock(NamedTuple):
    """A run directory that is held as long as the file is open.

    Attributes:
        excludes: whether other processes are kept out; not where the file system has no locks.
    """

    file: TextIO
    excludes: bool


def lock_directory(path: Path) -> Lock:
    """Lock a directory, which is made if need be.

    Raises:
        InputError: it cannot be written, or another process holds it.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        # Held as long as the run; no link that lies there is followed.
        file = os.fdopen(os.open(path / ".lock", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), "w")
    except OSError as error:
        raise InputError(
            f"run directory {str(path)!r} cannot be written ({error.strerror}); give another one with --out"
        ) from error
    try:
        # Freed by the operating system when the process ends, however it ends.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise InputError(f"run directory {str(path)!r} is in use by another process; wait for it") from error
    except OSError:  # a file system without locks, as Lustre often is: waiting would not help
        return Lock(file, excludes=False)
    return Lock(file, excludes=True)
