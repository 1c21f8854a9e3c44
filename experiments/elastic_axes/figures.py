"""Figures of the elastic axes: acceptance over both, pools by rule, readings by width, experts that tokens touch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.elastic_axes.readings import READINGS
from jaxspec.report.figures.style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    new_figure,
    styled,
    text_colour_on,
)

__all__ = ["axes_figure", "experts_figure", "pools_figure", "readings_figure"]

_COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, INK)

Rows = Sequence[Mapping[str, Any]]


@styled
def axes_figure(rows: Rows, capacity_bytes: float, name: str) -> Figure:
    """Fig. 5b: acceptance length by pool size and width; what fits into the fast memory is framed."""
    pools, widths = sorted({row["pool"] for row in rows}), sorted({row["bits"] for row in rows})
    value = {(row["bits"], row["pool"]): row for row in rows}
    table = np.array([[value[bits, pool]["mean"] for pool in pools] for bits in widths])
    figure = new_figure(
        f"Acceptance length over both axes: {name}",
        f"Measured. Framed: drafts that fit into {capacity_bytes / 1e6:.2f} MB; the star is the one that accepts most.",
        height_inches=4.2,
    )
    axis = figure.subplots()
    image = axis.imshow(table, origin="lower", aspect="auto", cmap="viridis")
    fitting = [
        (i, j) for i, b in enumerate(widths) for j, p in enumerate(pools) if value[b, p]["bytes"] <= capacity_bytes
    ]
    for i, j in np.ndindex(table.shape):
        colour = text_colour_on(image.to_rgba(table[i, j]))
        axis.text(j, i, f"{table[i, j]:.2f}", ha="center", va="center", color=colour, fontsize=8)
    for i, j in fitting:
        axis.add_patch(_frame(i, j))
    if fitting:
        i, j = max(fitting, key=lambda place: table[place])
        axis.plot(j, i + 0.3, marker="*", color=ORANGE, markersize=14)
    axis.set_xticks(range(len(pools)), [str(pool) for pool in pools])
    axis.set_yticks(range(len(widths)), [str(bits) for bits in widths])
    axis.set_xlabel("experts in the pool of a layer")
    axis.set_ylabel("bits of a weight")
    figure.colorbar(image, ax=axis, label="drafted tokens accepted")
    return figure


def _frame(i: int, j: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((j - 0.47, i - 0.47), 0.94, 0.94, fill=False, edgecolor=VERMILLION, linewidth=1.6)


@styled
def pools_figure(rows: Rows, name: str) -> Figure:
    """Fig. 17a and b: hot pools of one sequence, of several, and random ones."""
    figure = new_figure(
        f"How a pool is chosen: {name}",
        f"Measured, {rows[0]['bits']}-bit weights; bars of one standard error over texts.",
        height_inches=4.2,
    )
    _curves(
        figure, rows, "rule", "pool", list(dict.fromkeys(row["rule"] for row in rows)), "experts in the pool of a layer"
    )
    return figure


@styled
def readings_figure(rows: Rows, name: str) -> Figure:
    """Fig. 17c: what the upper bits of a weight are taken for."""
    figure = new_figure(
        f"What the draft takes a weight for: {name}",
        "Measured, all experts in the pool; bars of one standard error over texts.",
        height_inches=4.2,
    )
    _curves(figure, rows, "reading", "bits", list(READINGS), "bits of a weight")
    return figure


def _curves(figure: Figure, rows: Rows, by: str, over: str, names: Sequence[str], label: str) -> None:
    axis = figure.subplots()
    for name, colour in zip(names, _COLOURS * 2, strict=False):
        own = [row for row in rows if row[by] == name]
        x, y, error = ([row[key] for row in own] for key in (over, "mean", "standard_error"))
        axis.errorbar(x, y, yerr=error, color=colour, label=name, marker="o", markersize=4, linewidth=1.4)
    axis.set_xlabel(label)
    axis.set_ylabel("drafted tokens accepted")
    axis.grid(True)
    axis.legend(fontsize=8)


@styled
def experts_figure(rows: Rows, name: str) -> Figure:
    """Fig. 16b: distinct experts of neighbouring tokens and of tokens of different requests."""
    figure = new_figure(
        f"Experts of a layer that tokens choose together: {name}",
        "Measured in the mean over layers, with what even and independent choices would touch.",
        height_inches=4.2,
    )
    axis = figure.subplots()
    for key, label, colour in (
        ("one_request", "neighbours in one request", BLUE),
        ("several_requests", "one of each of several requests", VERMILLION),
        ("even", "even and independent", INK),
    ):
        axis.plot([row["tokens"] for row in rows], [row[key] for row in rows], color=colour, label=label, marker="o")
    axis.set_xlabel("tokens")
    axis.set_ylabel("distinct experts")
    axis.grid(True)
    axis.legend(fontsize=8)
    return figure
