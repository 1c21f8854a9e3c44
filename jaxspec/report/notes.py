"""What a reader of a result should know about the kernels behind its times: lines for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["note_lines"]


def note_lines(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each of the entries' `notes`, with the device that it is about; none twice.

    Args:
        entries: of result.json; the one of a sweep, which has several devices, names them itself.
    """
    lines = []
    for entry in entries:
        device = f" on {entry['device']}" if entry.get("device") else ""
        lines += [f"note{device}: {note}" for note in entry.get("notes") or []]
    return list(dict.fromkeys(lines))
