"""What a command shows of its result on a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from jaxspec.report.terminal import Table

__all__ = ["Shown"]


@dataclasses.dataclass(frozen=True)
class Shown:
    """A result as the command line presents it.

    Attributes:
        result: written by `--json`.
        tables: on standard output, `commands` below them, then `lines`.
        commands: of other programs, to copy: no line of them is folded, which would end the command or part a text in it.
        lines: sentences, folded to the width of the terminal.
        files: where more is to be found, on standard error; "": nowhere.
        first: sentences above the tables.
    """

    result: Any
    tables: Sequence[Table]
    lines: Sequence[str] = ()
    files: str = ""
    commands: Sequence[str] = ()
    first: Sequence[str] = ()
