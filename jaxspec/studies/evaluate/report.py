"""What `jaxspec evaluate` shows."""

from __future__ import annotations

from collections.abc import Sequence

from jaxspec.report.notes import note_lines
from jaxspec.report.shown import Shown
from jaxspec.report.table import tables
from jaxspec.runs.directory import RunDirectory
from jaxspec.studies.evaluate.result import EvaluateResult

__all__ = ["shown"]


def shown(found: tuple[Sequence[EvaluateResult], RunDirectory]) -> Shown:
    """Tables of one draft for the terminal, from what `evaluate` returned."""
    results, directory = found
    return Shown(
        [result.plain() for result in results],
        tables(results),
        note_lines(results),
        f"result: {directory.path / 'result.json'}",
    )
