"""What a command gives out: its files, then what it shows, and only then which file could not be written.

A place is checked before the work (`jaxspec.output_places`); when the work is done, a disk may be full or a folder gone. Each
output is tried whatever became of the others, so that one that fails takes nothing with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jaxspec.errors import InputError

__all__ = ["RUN_KEEPS_IT", "give_out"]

#: For commands with a run directory.
RUN_KEEPS_IT = "the run directory keeps the result: the same command writes it there without the work"


def give_out(writes: Iterable[Callable[[], object]], show: Callable[[], object], *, kept: str = "") -> None:
    """Write all files, show the result, and then tell which files are missing.

    Args:
        writes: of one file each, which is written whole or not at all.
        show: prints the result.
        kept: where the result is beside that, for the message.
    Raises:
        InputError: one line, with the place and the reason of each file that could not be written.
    """
    refused = []
    for write in writes:
        try:
            write()
        except InputError as error:
            refused.append(str(error))
    show()
    if refused:
        raise InputError("; ".join([*refused, *filter(None, [kept])]))
