"""The figure of a sweep: its front, and some of the other points."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from jaxspec.report.figures.style import BLUE, INK, VERMILLION, new_figure, styled
from jaxspec.report.page import Drawings
from jaxspec.studies.sweep.pareto import ParetoFront
from jaxspec.studies.sweep.points_file import read_pieces, read_sweep
from jaxspec.studies.sweep.result import SweepResult

__all__ = ["figures", "pareto_figure", "points"]


@styled
def pareto_figure(found: ParetoFront) -> Figure | None:
    """The front of the design points that fit, and a sample of them."""
    x, y = found.axes["x"], found.axes["y"]
    rows, cloud = found.rows(), found.cloud()
    figure = new_figure(
        f"{y} against {x}",
        f"{found.seen:,} design points (axes: input; results: predicted), of which {found.fitting:,} fit their memory and "
        f"are shown; better: {found.axes['better_x']} {x}, {found.axes['better_y']} {y}; {len(rows)} points that no "
        "other beats",
        height_inches=5.0,
    )
    axes = figure.add_subplot()
    axes.plot(cloud[:, 0], cloud[:, 1], ".", color=BLUE, markersize=2.5, alpha=0.35, label="design points (a sample)")
    front = np.array([[row[x], row[y]] for row in rows], float).reshape(-1, 2)
    axes.plot(front[:, 0], front[:, 1], "o-", color=VERMILLION, markersize=4, linewidth=1.2, label="front")
    for i, values in enumerate((front[:, 0], front[:, 1])):
        # Of the cloud too: a point at 0 has no place on a logarithmic axis.
        positive = len(values) and values.min() > 0 and not np.any(cloud[:, i] <= 0)
        if positive and values.max() > 20 * values.min():
            (axes.set_xscale if i == 0 else axes.set_yscale)("log")
    axes.grid(True, which="both", color=INK)
    axes.set(xlabel=x, ylabel=y)
    axes.legend()
    return figure


def figures(result: SweepResult, directory: Path | None = None) -> Drawings:
    """The figure of a sweep by name; its points come from the directory."""
    return {"pareto": lambda: pareto_figure(_front(result, Path(directory or result.directory)))}


def _front(result: SweepResult, directory: Path) -> ParetoFront:
    front = ParetoFront(**vars(result.pareto.axes))
    for columns in read_pieces(directory):
        front.add(columns)
    return front


def points(result: SweepResult) -> dict[str, np.ndarray]:
    """Columns of all design points."""
    return read_sweep(result.directory)
