"""Accuracy against what it costs on a device: every plan, and those that no other beats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hwmodels.numerics.units import MILLI
from jaxspec.report.figures.style import (
    INK,
    WIDTH_INCHES,
    ShownFigure,
    legend_below,
    new_figure,
    styled,
)
from jaxspec.report.titles import architecture_title, device_title
from jaxspec.results import Quantity
from jaxspec.studies.scale.figures.accuracy import LINES, colour_of_method
from jaxspec.studies.scale.result import PlanRow, ScaleResult
from jaxspec.studies.scale.tables import here, named

__all__ = ["costs_figure", "plot"]


@styled
def costs_figure(result: ScaleResult) -> Figure | None:
    """Against time, and against energy where it is known; numbers are budgets, the line is the front."""
    rows = here(result)
    if not rows:
        return None
    figure = new_figure("Accuracy against cost", _subtitle(result), height_inches=4.4)
    parts = _costs(rows)
    found = figure.subplots(1, len(parts), squeeze=False, sharey=True)[0]
    for axes, part in zip(found, parts):
        _draw(axes, result, rows, *part)
    legend_below(figure, found[0], columns=3)
    return figure


@styled
def plot(found: tuple[Sequence[ScaleResult], Any]) -> Figure:
    """What `jaxspec scale --plot` draws: a row for each device."""
    results = found[0]
    figure = ShownFigure(figsize=(WIDTH_INCHES, 4.6 * len(results)), layout="constrained")
    for part, result in zip(figure.subfigures(len(results), 1, squeeze=False)[:, 0], results):
        rows = here(result)
        panels = _costs(rows)
        part.suptitle(_subtitle(result), fontsize=9, wrap=True)
        for axes, panel in zip(part.subplots(1, len(panels), squeeze=False, sharey=True)[0], panels):
            _draw(axes, result, rows, *panel)
            axes.legend(fontsize=7.5, loc="lower right")
    return figure


def _subtitle(result: ScaleResult) -> str:
    return (
        f"{architecture_title(result)} on {device_title(result)}, batch {result.workload.batch.value}, prompt of "
        f"{result.workload.context_tokens.value} tokens; accuracy measured on {result.model.name} with 95 % intervals, cost "
        "predicted; numbers: samples"
    )


Cost = tuple[str, Callable[[PlanRow], Quantity[float]], float, Callable[[PlanRow], Quantity[bool]]]


def _costs(rows: Sequence[PlanRow]) -> list[Cost]:
    """What a panel shows: its label, the cost, its unit, and whether a plan is on the front."""
    longest = max(row.total_s.known for row in rows)
    unit, name = (1.0, "s") if longest >= 1 else (MILLI, "ms")
    found: list[Cost] = [
        (f"time of an answer ({name})", lambda row: row.total_s, unit, lambda row: row.fastest_of_its_accuracy)
    ]
    if all(row.energy_j.number is not None for row in rows):
        found.append(
            ("energy of an answer (J)", lambda row: row.energy_j, 1.0, lambda row: row.cheapest_of_its_accuracy)
        )
    return found


def _draw(
    axes: Axes,
    result: ScaleResult,
    rows: Sequence[PlanRow],
    label: str,
    cost: Callable[[PlanRow], Quantity[float]],
    unit: float,
    on_front: Callable[[PlanRow], Quantity[bool]],
) -> None:
    axes.grid(True)
    names = [network.name for network in result.networks]
    methods = dict.fromkeys(row.method for row in result.plans)
    for i, name in enumerate(names):
        one = next(row for row in rows if (row.model, row.samples) == (name, 1))
        for method in methods:
            mine = [one, *(row for row in rows if (row.model, row.method) == (name, method) and row.samples > 1)]
            colour, marker = colour_of_method(method)
            mean = [row.accuracy.known for row in mine]
            spread = [
                [max(0.0, m - row.low.known) for m, row in zip(mean, mine)],
                [max(0.0, row.high.known - m) for m, row in zip(mean, mine)],
            ]
            axes.errorbar(
                [cost(row).known / unit for row in mine],
                mean,
                yerr=spread,
                color=colour,
                marker=marker,
                markersize=5,
                markerfacecolor=colour if mine[-1].attainable else "none",
                linestyle=LINES[i % len(LINES)],
                linewidth=1.0,
                elinewidth=0.7,
                alpha=0.9,
                label=named(method, name, result),
            )
    # Once for each place, although several methods may stand there.
    for x, y, text in dict.fromkeys((cost(row).known / unit, row.accuracy.known, row.samples) for row in rows):
        axes.annotate(str(text), (x, y), (4, -10), textcoords="offset points", fontsize=7.5)
    front = sorted((cost(row).known / unit, row.accuracy.known) for row in rows if on_front(row).value)
    if front:
        axes.step(*zip(*front), where="post", color=INK, linewidth=7, alpha=0.18, zorder=0, label="no plan beats these")
    costs = [cost(row).known for row in rows]
    if max(costs) > 8 * min(costs):
        axes.set_xscale("log")
    axes.set_ylim(0.0, 1.04)
    axes.set(xlabel=f"{label} (predicted)", ylabel="problems answered right (measured)")
