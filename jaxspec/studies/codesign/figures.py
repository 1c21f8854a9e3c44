"""Figures of a co-design: the way of every start, and what a percent, an mm2 and a watt of each variable are worth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from jaxspec.report.figures.style import BLUE, GREEN, INK, ORANGE, VERMILLION, new_figure, styled
from jaxspec.report.page import Drawings
from jaxspec.studies.codesign.result import CodesignResult, VariableRow

__all__ = ["elasticity_figure", "figures", "trajectory_figure"]

#: A question that exceeds a limit by more is drawn faintly.
_KEPT = 1e-3


@styled
def trajectory_figure(result: CodesignResult) -> Figure | None:
    """Objective at every question of every start, those that exceed a limit faintly."""
    if not result.starts:
        return None
    figure = new_figure(
        f"{result.objective} along {len(result.starts)} climbs",
        f"{result.architecture} on {result.device}, {result.scheme}; smoothed while it climbs (predicted); faint: a budget is "
        f"exceeded there; the line is the {result.ends_with}, exactly evaluated",
        height_inches=4.2,
    )
    axes = figure.add_subplot()
    for start in result.starts:
        values, excess = np.exp(start.objective), np.array(start.excess)
        steps = np.arange(1, len(values) + 1)
        axes.plot(steps, values, color=BLUE, linewidth=0.8, alpha=0.35)
        kept = excess <= _KEPT
        axes.plot(steps[kept], values[kept], ".", color=BLUE, markersize=5)
        axes.plot(steps[~kept], values[~kept], ".", color=BLUE, markersize=3, alpha=0.25)
    axes.axhline(_objective(result, "after"), color=VERMILLION, linewidth=1.2, label=result.ends_with)
    axes.axhline(_objective(result, "before"), color=INK, linewidth=0.8, linestyle=":", label="before")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(LogFormatter())  # 300, not 3 × 10²
    axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
    axes.grid(True, which="both")
    axes.set(xlabel="values with gradients that a climb asked for", ylabel=result.objective)
    axes.legend()
    return figure


def _objective(result: CodesignResult, which: str) -> float:
    return getattr(getattr(result, which), result.objective).known


@styled
def elasticity_figure(result: CodesignResult) -> Figure | None:
    """Elasticities at the proposal, and what one more mm2 and one more watt buy."""
    if not result.variables:
        return None
    rows = result.variables[::-1]
    figure = new_figure(
        f"What a variable is worth at the {result.ends_with}",
        f"percent of {result.objective} for a percent of the number, for one mm2 and for one W spent on it alone (predicted, "
        "smoothed); equal bars: nothing is gained by moving the budget from one to the other",
        height_inches=0.9 + 0.42 * len(rows),
    )
    panels = figure.subplots(1, 3, sharey=True)
    columns = (("elasticity", "% per %", BLUE), ("per_mm2", "% per mm2", GREEN), ("per_w", "% per W", ORANGE))
    for axes, (name, label, colour) in zip(panels, columns, strict=True):
        values = [getattr(row, name).number or 0.0 for row in rows]
        axes.barh(range(len(rows)), values, color=colour)
        axes.axvline(0.0, color=INK, linewidth=0.8)
        axes.grid(True, axis="x")
        axes.set(xlabel=label)
    panels[0].set_yticks(range(len(rows)), [_label(row) for row in rows], fontsize=8)
    return figure


def _label(row: VariableRow) -> str:
    end = {"low": " (least)", "high": " (most)"}.get(row.at, "")
    return row.name.removeprefix("device.") + end


def figures(result: CodesignResult, directory: Path | None = None) -> Drawings:
    """Figures of a co-design by name."""
    return {"trajectory": lambda: trajectory_figure(result), "elasticity": lambda: elasticity_figure(result)}
