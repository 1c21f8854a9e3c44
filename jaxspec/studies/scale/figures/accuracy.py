"""Accuracy against the number of samples, with intervals over problems."""

from __future__ import annotations

from matplotlib.figure import Figure

from jaxspec.report.figures.style import BLUE, GREEN, ORANGE, PURPLE, VERMILLION, legend_below, new_figure, styled
from jaxspec.report.titles import model_title
from jaxspec.studies.scale.result import ScaleResult
from jaxspec.studies.scale.tables import named

__all__ = ["LINES", "accuracy_figure", "colour_of_method"]

#: A network each, where there are several.
LINES = ("-", "--", ":", "-.")

_COLOURS = {"pass-at-n": GREEN, "best-of-n": BLUE, "majority": PURPLE, "beam": VERMILLION}
_MARKERS = {"pass-at-n": "o", "best-of-n": "s", "majority": "^", "beam": "D"}


def colour_of_method(method: str) -> tuple[str, str]:
    """Colour and marker of a method."""
    return _COLOURS.get(method, ORANGE), _MARKERS.get(method, "v")


@styled
def accuracy_figure(result: ScaleResult) -> Figure | None:
    """A curve for each network and method; what is a bound is open."""
    if not result.networks:
        return None
    task = result.task
    figure = new_figure(
        "Accuracy against samples",
        f"{model_title(result)} on {task.problems.value} problems of {task.name}"
        f"{f' ({task.check})' if task.check else ''}, temperature {result.decoding.temperature.value}, score {task.score}; "
        "measured, with 95 % intervals over problems",
        height_inches=4.2,
    )
    axes = figure.add_subplot()
    axes.grid(True)
    budgets = sorted({point.samples for network in result.networks for c in network.curves for point in c.points})
    count = max(len(network.curves) for network in result.networks)
    for network, line in zip(result.networks, LINES * len(result.networks)):
        for i, curve in enumerate(network.curves):
            colour, marker = colour_of_method(curve.method)
            mean = [point.accuracy.known for point in curve.points]
            spread = [
                [max(0.0, m - point.low.known) for m, point in zip(mean, curve.points)],
                [max(0.0, point.high.known - m) for m, point in zip(mean, curve.points)],
            ]
            name = named(curve.method, network.name, result)
            # Beside each other, so that intervals do not hide one another.
            aside = 1.0 + 0.05 * (i - (count - 1) / 2)
            axes.errorbar(
                [point.samples * aside for point in curve.points],
                mean,
                yerr=spread,
                color=colour,
                marker=marker,
                markersize=5,
                markerfacecolor=colour if curve.attainable else "none",
                linestyle=line,
                linewidth=1.5,
                elinewidth=0.9,
                capsize=2.5,
                label=name if curve.attainable else f"{name} (a bound: knows the answer)",
            )
    axes.set_xscale("log", base=2)
    axes.set_xticks(budgets, [str(budget) for budget in budgets])
    axes.minorticks_off()
    axes.set_ylim(0.0, 1.04)
    axes.set(xlabel="samples N of each problem", ylabel="problems answered right")
    legend_below(figure, axes, columns=3)
    return figure
