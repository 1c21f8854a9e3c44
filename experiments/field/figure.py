"""Predicted against measured decode speedups, with the diagonal and the 90 % intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

__all__ = ["draw"]

_STYLES = {"calibrated": ("o", "white"), "predicted": ("o", None)}


def draw(rows: Sequence[dict[str, Any]]) -> Figure:
    """One figure of all rows with a prediction and a measurement.

    Args:
        rows: as `experiments.field.answers` makes them.
    """
    figure = Figure(figsize=(7.0, 5.6), layout="constrained")
    axes = figure.add_subplot()
    shown = [row for row in rows if row["predicted_speedup"] and row["measured_speedup"] and not row["excluded"]]
    for number, group in enumerate(sorted({(row["source"], row["draft_kind"]) for row in shown})):
        for status, (marker, face) in _STYLES.items():
            found = [row for row in shown if (row["source"], row["draft_kind"]) == group and row["status"] == status]
            if not found:
                continue
            measured, predicted = ([row[name] for row in found] for name in ("measured_speedup", "predicted_speedup"))
            spread = [
                [row["predicted_speedup"] - row["low"] for row in found],
                [row["high"] - row["predicted_speedup"] for row in found],
            ]
            color = f"C{number}"
            axes.errorbar(measured, predicted, spread, fmt="none", ecolor=color, elinewidth=0.5, alpha=0.4)
            label = f"{group[0]}: {group[1]} ({status}, {len(found)})"
            axes.plot(
                measured, predicted, marker, color=color, markerfacecolor=face or color, markersize=4, label=label
            )
    ends = [row[name] for row in shown for name in ("measured_speedup", "predicted_speedup")]
    if ends:
        low, high = 0.95 * min(ends), 1.05 * max(ends)
        axes.plot([low, high], [low, high], color="0.4", linewidth=0.8)
        figure.legend(fontsize=7, loc="outside lower center")
    axes.set_xlabel("decode speedup, measured by others")
    axes.set_ylabel("decode speedup, predicted")
    return figure
