"""Figures 5 and 10: accuracy against the budget, and against the latency of decoding. Matplotlib figures, not yet saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.papers.mobile_npu.scaling import METHODS, PHONES, Line
from jaxspec.report.figures.style import BLUE, INK, VERMILLION, new_figure, styled
from jaxspec.studies.scale.result import CurvePoint, PlanRow
from jaxspec.studies.sweep.pareto import is_pareto

__all__ = ["budget_figure", "latency_figure"]

_COLOURS = (BLUE, VERMILLION)


def _spread(points: Sequence[CurvePoint] | Sequence[PlanRow]) -> tuple[list[float], list[list[float]]]:
    """Accuracies, and how far their intervals reach below and above."""
    mean = [point.accuracy.known for point in points]
    below = [max(0.0, m - point.low.known) for m, point in zip(mean, points, strict=True)]
    above = [max(0.0, point.high.known - m) for m, point in zip(mean, points, strict=True)]
    return mean, [below, above]


@styled
def budget_figure(found: Mapping[str, tuple[Line, Line]]) -> Figure:
    """Fig. 5: best-of-N of two networks on each task.

    Args:
        found: of `scaling`.
    """
    figure = new_figure(
        "Accuracy against the budget (Fig. 5)",
        "Best-of-N, by mean log-probability for functions and by a judge for sums. Measured on shipped networks, with 95 % "
        "intervals over problems; the paper's networks and tasks are others.",
        height_inches=3.4,
    )
    for axes, (task, lines) in zip(figure.subplots(1, len(found), sharey=True), found.items(), strict=True):
        budgets = [point.samples for point in lines[0].curve("best-of-n")]
        for line, colour in zip(lines, _COLOURS, strict=True):
            points = line.curve("best-of-n")
            mean, spread = _spread(points)
            axes.errorbar(
                budgets, mean, yerr=spread, color=colour, marker="o", markersize=4, capsize=2, label=line.label
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks(budgets, [str(budget) for budget in budgets])
        axes.minorticks_off()
        axes.set_ylim(0.0, 1.04)
        axes.set_title(task, loc="left", fontsize=10)
        axes.set(xlabel="samples N", ylabel="problems answered right")
        axes.label_outer()
        axes.grid(True)
        axes.legend(loc="lower right", fontsize=8)
    return figure


@styled
def latency_figure(found: Mapping[str, tuple[Line, Line]]) -> Figure:
    """Fig. 10: a row for each method, a column for each task on each phone.

    Args:
        found: of `scaling`.
    """
    figure = new_figure(
        "Accuracy against the latency of decoding (Fig. 10)",
        "Accuracy measured on shipped networks, latency of an answer's decoding predicted, verifiers apart as in the paper. "
        "Numbers: samples. Large marks: one sample. Grey: plans that no other of the panel beats.",
        height_inches=5.4,
    )
    places = [(task, phone) for task in found for phone in PHONES]
    grid = figure.subplots(len(METHODS), len(places), sharey=True, squeeze=False)
    for row, (method, title) in zip(grid, METHODS.items(), strict=True):
        for axes, (task, phone) in zip(row, places, strict=True):
            _draw(axes, [line.plans(phone, method) for line in found[task]])
            if method == next(iter(METHODS)):
                axes.set_title(f"{task}\nHexagon {phone}", loc="left", fontsize=9)
            else:
                axes.set_xlabel("s")
        row[0].set_ylabel(f"{title}:\nanswered right")
    handles = [
        Line2D([], [], color=colour, marker="o", label=f"{task}: {line.label}")
        for task, lines in found.items()
        for line, colour in zip(lines, _COLOURS, strict=True)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=8)
    return figure


def _draw(axes: Axes, lines: Sequence[Sequence[PlanRow]]) -> None:
    """A panel: both networks' plans that fit, and those that none beats."""
    shown = [[row for row in plans if row.fits.value] for plans in lines]
    for plans, colour in zip(shown, _COLOURS, strict=True):
        cost, (mean, spread) = [row.decode_s.known for row in plans], _spread(plans)
        axes.errorbar(cost, mean, yerr=spread, color=colour, marker="o", markersize=4, linewidth=1.0, elinewidth=0.6)
        for row, x, y in zip(plans, cost, mean, strict=True):
            axes.annotate(str(row.samples), (x, y), (3, -9), textcoords="offset points", fontsize=7)
            if row.samples == 1:
                axes.plot(x, y, "o", color=colour, markersize=9)
    every = [row for plans in shown for row in plans]
    cost, accuracy = (np.array(part) for part in zip(*((row.decode_s.known, row.accuracy.known) for row in every)))
    keep = is_pareto(cost, -accuracy)
    front = np.array(sorted(zip(cost[keep], accuracy[keep], strict=True)))
    axes.step(*front.T, where="post", color=INK, linewidth=6, alpha=0.18, zorder=0)
    axes.set_xlim(left=0.0)
    axes.set_ylim(0.0, 1.04)
    axes.grid(True)
