"""What a command shows of its result on a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

from jaxspec.report.terminal import Table

__all__ = ["Shown", "note_lines", "shown_run"]


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


class Noted(Protocol):
    """A result with notes; one of several devices names them itself, and has None for its device."""

    @property
    def device(self) -> str | None:
        """Whom the notes are about."""
        ...

    @property
    def notes(self) -> list[str]:
        """Sentences for a reader."""
        ...


def note_lines(results: Sequence[Noted]) -> list[str]:
    """A line for each note of the results, with the device that it is about; none twice."""
    lines = []
    for result in results:
        device = f" on {result.device}" if result.device else ""
        lines += [f"note{device}: {note}" for note in result.notes]
    return list(dict.fromkeys(lines))


def shown_run(
    run: tuple[Sequence[Any], Any],
    tables: Sequence[Table],
    lines: Sequence[str] | None = None,
    page: str = "report.html",
) -> Shown:
    """How a run of a result for each device ends.

    Args:
        run: results and their run directory.
        lines: notes of the results, unless given.
        page: of the directory, named last.
    """
    results, directory = run
    said = f"{'report' if page.endswith('.html') else 'result'}: {directory.path / page}"
    return Shown([each.plain() for each in results], tables, note_lines(results) if lines is None else lines, said)
