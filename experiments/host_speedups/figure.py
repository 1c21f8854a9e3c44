"""Predicted against measured speedups, with the diagonal and the intervals of the clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

__all__ = ["draw"]

_MARKERS = {1: "o", 16: "s"}


def draw(rows: Sequence[dict[str, Any]]) -> Figure:
    """One figure of all rows that have a measured speedup; an end of its interval that is not known is not drawn."""
    rows = [row for row in rows if row["measured_speedup"]["median"] is not None]
    figure = Figure(figsize=(7.0, 5.6), layout="constrained")
    axes = figure.add_subplot()
    kinds = list(dict.fromkeys((row["draft"], _form(row), row["batch"]) for row in rows))
    for number, kind in enumerate(kinds):
        found = [row for row in rows if (row["draft"], _form(row), row["batch"]) == kind]
        color, marker = f"C{number % 10}", _MARKERS.get(kind[2], "^")
        for row in found:
            clock = row["measured_speedup"]
            middle = clock["median"]
            low, high = (middle if clock[end] is None else clock[end] for end in ("low", "high"))
            place = (middle, row["predicted_speedup"])
            axes.errorbar(*place, xerr=[[middle - low], [high - middle]], fmt=marker, color=color, ms=4, elinewidth=0.5)
        axes.plot([], [], marker, color=color, ms=4, label=f"{kind[0]}, {kind[1]}, batch {kind[2]}")
    ends = [value for row in rows for value in (row["measured_speedup"]["median"], row["predicted_speedup"])]
    if ends:
        low, high = 0.95 * min(ends), 1.05 * max(ends)
        axes.plot([low, high], [low, high], color="0.4", linewidth=0.8)
        figure.legend(fontsize=7, loc="outside lower center", ncols=2)
    axes.set_xlabel("speedup, measured on this machine")
    axes.set_ylabel("speedup, predicted")
    return figure


def _form(row: dict[str, Any]) -> str:
    return "chains" if row["shape"].startswith("chain of") else "trees"
