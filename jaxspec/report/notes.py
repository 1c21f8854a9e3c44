"""What a reader of a result should know about the kernels behind its times: lines for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["Noted", "note_lines"]


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
