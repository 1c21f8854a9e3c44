"""The figure that every paper gets, signed errors of all cells by table and metric, and how figures are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.reproduce.paper import STATUSES, ComparedCell, Outcome, Paper
from jaxspec.errors import InputError
from jaxspec.partial_files import PartialFiles
from jaxspec.report.figures.style import BLUE, INK, ORANGE, SKY, VERMILLION, new_figure, styled

__all__ = ["error_figure", "write_figures"]

_COLOURS = {"input": SKY, "calibrated": ORANGE, "predicted": BLUE}

#: Errors below this share lie on a linear scale, those above on a logarithmic one.
_LINEAR = 0.01

#: Repeated values may be off by what single precision loses.
_ROUNDING = 1e-6

#: Ends of the scale. A cell that is further off is drawn at the end.
_FURTHEST = 5.0


def write_figures(paper: Paper, outcome: Outcome, folder: Path) -> None:
    """All figures of a paper as `<paper>_<name>.png`, all or none.

    Raises:
        InputError: nothing can be written there.
    """
    drawn = {"errors": error_figure(paper, outcome)} | {name: draw(outcome) for name, draw in paper.figures.items()}
    try:
        with PartialFiles() as files:
            for name, figure in drawn.items():
                if figure is not None:
                    figure.savefig(files.add(folder / f"{paper.name}_{name}.png"), dpi=150, format="png")
            files.commit()
    except OSError as error:
        raise InputError(f"no figure can be written to {folder} ({error.strerror}); name another folder") from error


@styled
def error_figure(paper: Paper, outcome: Outcome) -> Figure | None:
    """Signed relative errors, a line for each metric of each table that is more than repeated; None without a line."""
    lines = [
        (table.name, metric, [row for row in outcome.of(table.name) if row["metric"] == metric])
        for table in paper.tables
        for metric, found in outcome.summary[table.name]["by_metric"].items()
        if not _only_repeats(found["relative_error"])
    ]
    if not lines:
        return None
    figure = new_figure(
        f"Errors by table and metric: {paper.name}",
        "Model over printed value, less 1. Each mark is a cell; hollow marks are cells in doubt. Bars: the range within which "
        "the best of the simplest predictors stays on the predicted cells. Linear up to 1 %, logarithmic beyond.",
        height_inches=0.9 + 0.3 * len(lines),
    )
    axes = figure.subplots()
    for height, (name, metric, rows) in enumerate(lines):
        _draw_line(axes, height, rows, outcome.summary[name]["by_metric"][metric])
    axes.axvline(0.0, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(lines)), [_short(f"{name}: {metric}") for name, metric, _ in lines], fontsize=8)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.set_xscale("symlog", linthresh=_LINEAR)
    axes.set_xlim(-1.3 * _FURTHEST, 1.3 * _FURTHEST)
    ticks = [-1.0, -0.1, -0.01, 0.0, 0.01, 0.1, 1.0]
    axes.set_xticks(ticks, [f"{tick:+.0%}" if tick else "0" for tick in ticks])
    axes.minorticks_off()
    axes.grid(True, axis="x")
    marks = [Line2D([], [], color=_COLOURS[status], marker="o", linestyle="", label=status) for status in STATUSES]
    marks.append(Line2D([], [], color=VERMILLION, linewidth=5, alpha=0.25, label="simplest predictor, largest error"))
    figure.legend(handles=marks, loc="outside lower center", ncols=4)
    return figure


def _only_repeats(errors: Mapping[str, Any]) -> bool:
    return set(errors) == {"input"} and errors["input"]["max"] < _ROUNDING


def _short(label: str, most: int = 52) -> str:
    return label if len(label) <= most else f"{label[: most - 1]}…"


def _draw_line(axes: Axes, height: int, rows: Sequence[ComparedCell], found: dict[str, Any]) -> None:
    peers = found["simplest_predictors"].get("predicted", {}).values()
    known = [peer["max"] for peer in peers if peer["max"] is not None]
    if known:
        end = min(min(known), _FURTHEST)
        axes.plot(
            [-min(end, 1.0), end], [height, height], color=VERMILLION, linewidth=7, alpha=0.25, solid_capstyle="butt"
        )
    known_rows = [row for row in rows if row["relative_error"] is not None]
    # Side by side, in the order of the table, so that equal errors do not hide each other.
    for place, row in zip(height + np.linspace(-0.22, 0.22, len(known_rows) + 2)[1:-1], known_rows, strict=True):
        signed = (row["model_value"] - row["paper_value"]) / abs(row["paper_value"] or 1.0)
        colour = _COLOURS[row["status"]]
        fill = "none" if row["doubt"] else colour
        axes.plot(np.clip(signed, -_FURTHEST, _FURTHEST), place, "o", color=colour, markerfacecolor=fill, markersize=3)
