"""Figures of a calibration: measured and fitted times by rows, and what the fits miss."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from hwmodels.numerics.units import MICRO
from jaxspec.report.figures.style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    legend_below,
    new_figure,
    styled,
)
from jaxspec.studies.calibrate.result import CalibrateResult, MeasuredTime

__all__ = ["residuals_figure", "rows_figure"]

_COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
_PARTS = {"product": BLUE, "attention": VERMILLION, "step": GREEN, "lookup": PURPLE, "sampling": ORANGE, "cycle": SKY}


@styled
def rows_figure(result: CalibrateResult) -> Figure | None:
    """Time of a product by its rows: measured points, and the line of the device file; a panel for each format."""
    products = [row for row in result.measurements if row.part == "product"]
    formats = sorted({row.weight_bits for row in products if row.weight_bits}, reverse=True)
    if not formats:
        return None
    figure = new_figure(
        "Products by rows",
        f"{result.device_title}: measured (points) and by the device file (lines), several matrices; where a step of rows "
        "shows in the points, the line follows it",
        height_inches=4.4,
    )
    panels = figure.subplots(1, len(formats), squeeze=False, sharey=True)[0]
    for axes, bits in zip(panels, formats):
        mine = [row for row in products if row.weight_bits == bits]
        for colour, (shape, rows) in zip(_COLOURS, _some_matrices(mine)):
            rows = sorted(rows, key=lambda row: row.rows or 0)
            at = [row.rows or 0.0 for row in rows]
            axes.plot(at, [row.seconds.known / MICRO for row in rows], "o", color=colour, markersize=3.5)
            axes.plot(at, [row.predicted_s.known / MICRO for row in rows], color=colour, linewidth=1.2, label=shape)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.grid(True)
        axes.set(xlabel="rows", title=f"{bits:g}-bit weights")
    panels[0].set_ylabel("time (µs)")
    legend_below(figure, panels[0], columns=3)
    return figure


def _some_matrices(rows: Sequence[MeasuredTime]) -> list[tuple[str, list[MeasuredTime]]]:
    """A few matrices with most rows each, from small to large."""
    found: dict[str, dict[float, MeasuredTime]] = {}
    for row in rows:
        found.setdefault(f"{row.inner:g} x {row.outer:g}", {}).setdefault(row.rows or 0.0, row)
    full = [(shape, list(each.values())) for shape, each in found.items()]
    full.sort(key=lambda item: (item[1][0].inner or 0) * (item[1][0].outer or 0))
    if len(full) <= len(_COLOURS):
        return full
    step = (len(full) - 1) / (len(_COLOURS) - 1)
    return [full[round(i * step)] for i in range(len(_COLOURS))]


@styled
def residuals_figure(result: CalibrateResult) -> Figure | None:
    """Predicted over measured of rows that each fit did not see, by measured time."""
    known = [row for row in result.measurements if row.held_out_s.number is not None and row.seconds.number]
    if not known:
        return None
    figure = new_figure(
        "What the fits miss",
        f"{result.device_title}: predicted over measured time, each by a fit that did not see its shape; dashed: 10 %",
        height_inches=3.8,
    )
    axes = figure.add_subplot()
    for part, colour in _PARTS.items():
        mine = [row for row in known if row.part == part]
        if mine:
            ratio = [row.held_out_s.known / row.seconds.known for row in mine]
            axes.plot([row.seconds.known / MICRO for row in mine], ratio, ".", color=colour, markersize=4, label=part)
    for level, style in ((1.0, "-"), (0.9, "--"), (1.1, "--")):
        axes.axhline(level, color=INK, linewidth=0.8, linestyle=style)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(True)
    axes.set(xlabel="measured time (µs)", ylabel="predicted over measured")
    legend_below(figure, axes, columns=6)
    return figure
