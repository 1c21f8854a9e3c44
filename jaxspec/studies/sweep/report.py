"""The table of `jaxspec sweep`."""

from __future__ import annotations

import math
from typing import Any

from jaxspec.report.notes import note_lines
from jaxspec.report.shown import Shown
from jaxspec.report.terminal import Table
from jaxspec.studies.acceptance_points import law_line
from jaxspec.studies.sweep.result import SweepResult

__all__ = ["shown", "sweep_table"]

_ROWS = 20


def sweep_table(result: SweepResult) -> Table:
    """The Pareto front, at most twenty of its points, evenly taken."""
    axes, rows = result.pareto.axes, result.pareto.points
    results = ("draft_length", "speedup_vs_bf16_ar", "tokens_per_s")
    third = [axes.z] if axes.z else []
    divided = [*axes.group, *([axes.facets] if axes.facets else [])]
    names = list(dict.fromkeys([*divided, axes.x, axes.y, *third, *_varied(rows), *results]))
    count = max(result.pareto.count, len(rows))
    table = Table(
        title=f"Pareto front: {axes.better_x} {axes.x}, {axes.better_y} {axes.y}"
        + (f", {axes.better_z} {axes.z}" if axes.z else "")
        + (f", for each {' and '.join(dict.fromkeys(divided))}" if divided else ""),
        caption=f"{count:,} of {result.points:,} points, of which {result.points_that_fit:,} fit their memory "
        "(axes: input; results: predicted)"
        + (f"\nin brackets: {result.interval_statement}" if result.interval_statement else ""),
    )
    for name in names:
        table.add_column(name, justify="right")
    step = max(1, -(-len(rows) // _ROWS))
    for row in rows[::step]:
        table.add_row(*(_cell(row[name]) + _ends(row, name) for name in names))
    return table


def _cell(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, (int, float)) else str(value)


def _ends(row: dict[str, Any], name: str) -> str:
    """The interval of a result, as in " [1.9, 2.1]"; empty where a point has none."""
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    known = isinstance(low, float) and isinstance(high, float) and math.isfinite(low) and math.isfinite(high)
    return f" [{low:.4g}, {high:.4g}]" if known else ""


def _varied(rows: list[dict[str, Any]]) -> list[str]:
    """Columns of axes that differ along the front; axes have dots in their names, results have none."""
    names = [name for name in (rows[0] if rows else {}) if "." in name or name in ("architecture", "device")]
    return [name for name in names if len({row[name] for row in rows}) > 1]


def shown(result: SweepResult) -> Shown:
    """The table of a sweep for the terminal, and where its files are."""
    where = (
        f"{result.points:,} points in {result.directory}/sweep.parquet; figure: {result.directory}/figures/pareto.png"
    )
    first = [law_line(result.acceptance)]
    return Shown(result.plain(), [sweep_table(result)], [*note_lines([result]), where], first=first)
