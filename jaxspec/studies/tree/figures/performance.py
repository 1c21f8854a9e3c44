"""Effective performance by the number of verified tokens, for every context."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxspec.report.figures.style import INK, new_figure, styled
from jaxspec.report.titles import provenance
from jaxspec.studies.tree.result import TreeResult

__all__ = ["performance_figure"]


@styled
def performance_figure(result: TreeResult) -> Figure | None:
    """Tokens per second of one sequence, a curve per context with its best length and the line of plain decoding."""
    rows, curve = result.contexts, result.curve
    if not rows or not curve:
        return None
    figure = new_figure("Effective performance by verification length", provenance(result), height_inches=5.0)
    axes = figure.add_subplot()
    axes.grid(True)
    lengths = [row.verification_length for row in curve]
    # The palest end of the map is hard to see on paper.
    colours = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.85, len(rows)))
    handles = []
    for row, colour in zip(rows, colours):
        plain = 1.0 / min(row.ar_bf16_s.known, row.ar_stored_s.known)
        axes.plot(lengths, row.effective_performance.known, color=colour, linewidth=1.6)
        axes.axhline(plain, color=colour, linewidth=1.0, linestyle=(0, (5, 3)))
        best, pays = row.decision.best_tree, row.decision.speculate.value
        axes.plot(
            best.verification_length.known,
            best.tokens_per_s.known,
            marker="*" if pays else "o",
            markersize=14 if pays else 7,
            color=colour if pays else "none",
            markeredgecolor=INK if pays else colour,
            zorder=3,
        )
        handles.append(Line2D([], [], color=colour, label=f"context {row.context_tokens:,}"))
    mark: dict[str, Any] = {"linestyle": "none", "markeredgecolor": INK, "markerfacecolor": "none"}
    handles += [
        Line2D([], [], marker="*", markersize=12, label="best length, pays", **mark),
        Line2D([], [], marker="o", markersize=7, label="best length, does not pay", **mark),
        Line2D([], [], color=INK, linestyle=(0, (5, 3)), linewidth=1.0, label="plain decoding at that context"),
    ]
    axes.set_xlabel("verified tokens x, root included (tokens)")
    axes.set_ylabel("tokens per second of one sequence (predicted)")
    axes.set_ylim(bottom=0.0)
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure
