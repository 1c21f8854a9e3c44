"""What `jaxspec evaluate` shows."""

from __future__ import annotations

from collections.abc import Sequence

from jaxspec.report.entries import Entry
from jaxspec.report.notes import note_lines
from jaxspec.report.shown import Shown
from jaxspec.report.table import tables
from jaxspec.runs.directory import RunDirectory

__all__ = ["shown"]


def shown(found: tuple[Sequence[Entry], RunDirectory]) -> Shown:
    """Tables of one draft for the terminal, from what `evaluate` returned."""
    entries, directory = found
    return Shown(entries, tables(entries), note_lines(entries), f"result: {directory.path / 'result.json'}")
