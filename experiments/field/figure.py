"""Predicted against measured decode speedups, with the diagonal and the 90 % intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["draw"]

#: Of sources, in turn: more sources than colors differ by their markers.
_MARKERS = ("o", "s", "^", "D", "v")

#: Face of a marker by a row's status; None: the source's color.
_FACES = {"calibrated": "white", "predicted": None}


def draw(rows: Sequence[dict[str, Any]]) -> Figure:
    """One figure of all rows with a prediction and a measurement, a color and marker for each source; rows that terms were
    fitted to are open.

    Args:
        rows: as `experiments.field.answers` makes them.
    """
    figure = Figure(figsize=(7.0, 6.4), layout="constrained")
    axes = figure.add_subplot()
    shown = [row for row in rows if row["predicted_speedup"] and row["measured_speedup"] and not row["excluded"]]
    for number, source in enumerate(sorted({row["source"] for row in shown})):
        _draw_source(axes, [row for row in shown if row["source"] == source], source, number)
    ends = [row[name] for row in shown for name in ("measured_speedup", "predicted_speedup")]
    if ends:
        low, high = 0.95 * min(ends), 1.05 * max(ends)
        axes.plot([low, high], [low, high], color="0.4", linewidth=0.8)
        figure.legend(fontsize=7, loc="outside lower center", ncols=2)
    axes.set_xlabel("decode speedup, measured by others")
    axes.set_ylabel("decode speedup, predicted (open: terms were fitted to the row)")
    return figure


def _draw_source(axes: Axes, rows: Sequence[dict[str, Any]], source: str, number: int) -> None:
    color, marker = f"C{number % 10}", _MARKERS[number % len(_MARKERS)]
    for status, face in _FACES.items():
        found = [row for row in rows if row["status"] == status]
        if not found:
            continue
        measured, predicted = ([row[name] for row in found] for name in ("measured_speedup", "predicted_speedup"))
        spread = [
            [row["predicted_speedup"] - row["low"] for row in found],
            [row["high"] - row["predicted_speedup"] for row in found],
        ]
        axes.errorbar(measured, predicted, spread, fmt="none", ecolor=color, elinewidth=0.5, alpha=0.4)
        label = f"{source.removeprefix('github.com/')} ({len(found)} {status})"
        axes.plot(measured, predicted, marker, color=color, markerfacecolor=face or color, markersize=4, label=label)
