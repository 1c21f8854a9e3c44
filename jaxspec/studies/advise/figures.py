"""Figures of the advice: gain against batch with its interval and the chosen length, and what the time goes to."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hwmodels.numerics.units import MILLI
from jaxspec.report.figures.style import (
    BLACK,
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PAPER,
    PURPLE,
    SKY,
    VERMILLION,
    WIDTH_INCHES,
    YELLOW,
    ShownFigure,
    limits_from_zero,
    styled,
)
from jaxspec.studies.advise.result import AdviseResult
from jaxspec.studies.advise.words import title_in_words

__all__ = ["gain_figure", "limits_figure"]

#: What operators wait for -> colour; a draft's are hatched.
_COLOURS = {
    "arithmetic": BLUE,
    "memory": ORANGE,
    "decoding of weights": PURPLE,
    "exchange": YELLOW,
    "launches": SKY,
    "engine": VERMILLION,
    "other devices": GREEN,
}


def _batches(axes: Axes, result: AdviseResult) -> None:
    batches = [row.batch for row in result.by_batch]
    if min(batches) < max(batches):
        axes.set_xscale("log", base=2)
    axes.set_xticks(batches, [str(batch) for batch in batches])
    axes.minorticks_off()
    axes.set_xlabel("sequences decoded together")


@styled
def gain_figure(result: AdviseResult) -> Figure:
    """Speedup of the best draft at every batch, with its interval and its length; 1 is decoding without a draft."""
    figure = ShownFigure(figsize=(WIDTH_INCHES, 4.4), layout="constrained")
    axes = figure.subplots()
    rows = result.by_batch
    batches = [row.batch for row in rows]
    best = [row.best_draft_speedup.known for row in rows]
    ends = [(row.best_draft_interval.low.number, row.best_draft_interval.high.number) for row in rows]
    lows = [value if low is None else low for value, (low, _) in zip(best, ends, strict=True)]
    highs = [value if high is None else high for value, (_, high) in zip(best, ends, strict=True)]
    if result.interval_covers:
        axes.fill_between(batches, lows, highs, color=GREEN, alpha=0.25, linewidth=0, label="90 % interval")
    axes.plot(batches, best, marker="o", color=GREEN, label="best draft length")
    single = result.single_draft_length.value
    if single:
        fixed = [row.speedups.known[single - 1] for row in rows]
        axes.plot(batches, fixed, color=BLUE, linestyle="--", label=f"{single} tokens at every batch")
    axes.axhline(1.0, color=INK, linewidth=0.9, linestyle=":")
    for row, high in zip(rows, highs, strict=True):
        text = str(row.draft_length.value or "no draft")
        at = {"xytext": (0, 6), "textcoords": "offset points", "ha": "center", "fontsize": 9}
        axes.annotate(text, (row.batch, high), **at)
    _batches(axes, result)
    axes.set_ylim(limits_from_zero([1.0, *highs], room=1.15))
    axes.set_ylabel("speedup over decoding without a draft")
    axes.set_title(title_in_words(result), fontsize=10, loc="left")
    axes.grid(True)
    axes.legend(loc="lower left")
    return figure


@styled
def limits_figure(result: AdviseResult) -> Figure:
    """Share of a cycle's time by what its operators wait for, at every batch with the chosen draft length."""
    figure = ShownFigure(figsize=(WIDTH_INCHES, 4.0), layout="constrained")
    axes = figure.subplots()
    rows, places = result.by_batch, list(range(len(result.by_batch)))
    found = [row.time_by_cause.known for row in rows]
    names = sorted({name for one in found for name in one}, key=lambda name: -max(one.get(name, 0.0) for one in found))
    bottoms = [0.0] * len(rows)
    for name in names:
        part, _, cause = name.rpartition(": ")
        totals = [sum(one.values()) for one in found]
        heights = [one.get(name, 0.0) / total for one, total in zip(found, totals, strict=True)]
        if max(heights) < 0.005:
            continue
        hatch = "//" if part == "draft" else None
        axes.bar(
            places, heights, bottom=bottoms, color=_COLOURS.get(cause, BLACK), edgecolor=PAPER, hatch=hatch, label=name
        )
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    for place, row in zip(places, rows, strict=True):
        text = f"{row.cycle_s.known / MILLI:.3g} ms"
        axes.annotate(text, (place, 1.0), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=8)
    axes.set_xticks(places, [f"{row.batch}\n({row.draft_length.value or 'no draft'})" for row in rows])
    axes.set(xlabel="sequences decoded together (draft length)", ylabel="share of a cycle", ylim=(0, 1.1))
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
