"""Figure of the variants: what each adds to the bits of text, and what it leaves of arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxspec.report.figures.style import BLUE, GREEN, new_figure, styled

__all__ = ["quality_figure"]


@styled
def quality_figure(result: Mapping[str, Any]) -> Figure:
    """Bits per byte beside the float network's, and share of arithmetic solved, of every variant."""
    rows = result["variants"]
    solved = [row for row in rows if "arithmetic_greedy" in row]
    figure = new_figure(
        f"Accuracy as stored: {result['model']}",
        "Measured, 95 % bootstrap intervals over windows and problems. Bits per weight stand in brackets.",
        height_inches=1.2 + 0.32 * len(rows),
    )
    axes = figure.subplots(1, 2 if solved else 1, sharey=True, squeeze=False)[0]
    _bars(axes[0], rows, "bits_per_byte", BLUE)
    axes[0].set_xlabel("bits per byte, held-out text")
    low = min(row["bits_per_byte"]["low"] for row in rows)
    high = max(row["bits_per_byte"]["high"] for row in rows)
    axes[0].set_xlim(low - 0.3 * (high - low), high + 0.05 * (high - low))
    axes[0].set_yticks(np.arange(len(rows)), [f"{row['variant']} [{row['bits_per_weight']:.1f}]" for row in rows])
    axes[0].invert_yaxis()
    if solved:
        _bars(axes[1], solved, "arithmetic_greedy", GREEN)
        axes[1].set_xlabel("arithmetic solved, greedy")
        axes[1].set_xlim(0.0, 1.0)
    return figure


def _bars(axes: Axes, rows: list[Mapping[str, Any]], key: str, colour: str) -> None:
    values, low, high = (np.array([row[key][end] for row in rows]) for end in ("value", "low", "high"))
    places = np.arange(len(rows))
    axes.barh(places, values, color=colour, alpha=0.8)
    axes.errorbar(values, places, xerr=[values - low, high - values], fmt="none", ecolor="#24292f", capsize=2)
    axes.grid(True, axis="x")
