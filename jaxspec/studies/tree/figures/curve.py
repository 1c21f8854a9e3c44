"""Tokens per cycle by the number of verified tokens, measured, with the law that tells them."""

from __future__ import annotations

from matplotlib.figure import Figure

from jaxspec.report.figures.style import BLUE, INK, VERMILLION, legend_below, new_figure, styled
from jaxspec.report.formatting import fixed
from jaxspec.report.titles import model_title
from jaxspec.studies.tree.result import TreeResult

__all__ = ["curve_figure"]


@styled
def curve_figure(result: TreeResult) -> Figure | None:
    """The curve with one standard error up and down, the law with its interval, and the point that decoding counted."""
    rows = [row for row in result.curve if row.tokens_per_cycle.number is not None]
    if not rows:
        return None
    figure = new_figure(
        "Tokens per cycle of growing trees",
        f"draft {result.draft.name} for {model_title(result)}, search {result.search.name}, "
        f"depth {result.search.depth.value}",
        height_inches=4.4,
    )
    axes = figure.add_subplot()
    axes.grid(True)
    lengths = [row.verification_length for row in rows]
    errors = [row.tokens_per_cycle.standard_error or 0.0 for row in rows]
    axes.errorbar(
        lengths,
        [row.tokens_per_cycle.known for row in rows],
        yerr=errors,
        linestyle="none",
        marker="o",
        markersize=4.5,
        color=BLUE,
        elinewidth=1.0,
        capsize=2.5,
        zorder=2,
        label="held-out prompts ± one standard error (measured)",
    )
    law = result.law
    if law is not None:
        low, high = law.lower.value or [], law.upper.value or []
        known = None not in (*low, *high)
        if known:
            axes.fill_between(lengths, low, high, color=VERMILLION, alpha=0.15, linewidth=0)
        interval = f", band: {100 * (law.confidence or 0):.0f} % interval" if known else ""
        axes.plot(
            lengths,
            law.tokens_per_cycle.known,
            color=VERMILLION,
            linewidth=1.6,
            zorder=3,
            label=f"A + B ln(x − C), R² {fixed(law.r_squared.number, 4)} (calibrated{interval})",
        )
        by_length = {row.verification_length: row.tokens_per_cycle.known for row in rows}
        fitted = [x for x in law.fitted_lengths if x in by_length]
        axes.plot(
            fitted,
            [by_length[x] for x in fitted],
            linestyle="none",
            marker="o",
            markersize=9,
            markerfacecolor="none",
            markeredgecolor=VERMILLION,
            zorder=4,
            label="lengths that the law is fitted to",
        )
    length, counted = result.proof.verification_length.number, result.proof.tokens_per_cycle_counted.number
    if length is not None and counted is not None:
        axes.plot(
            length,
            counted,
            linestyle="none",
            marker="x",
            markersize=10,
            markeredgewidth=2.2,
            color=INK,
            zorder=5,
            label="counted in decoding with this tree (measured)",
        )
    axes.set_xlabel("verified tokens x, root included (tokens)")
    axes.set_ylabel("tokens per cycle (tokens)")
    legend_below(figure, axes, columns=2)
    return figure
