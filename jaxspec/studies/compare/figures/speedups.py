"""Speed of every way to decode, with its interval."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from jaxspec.report.figures.style import BLUE, GREEN, INK, ORANGE, PURPLE, limits_from_zero, new_figure, styled
from jaxspec.report.titles import provenance
from jaxspec.studies.compare.result import AUTOREGRESSIVE, COMPRESSION, DRAFT, SELF_DRAFT, CompareResult
from jaxspec.studies.compare.tables import by_speed

__all__ = ["KIND_COLOURS", "KIND_TITLES", "speedups_figure"]

#: Colour of each kind of contestant.
KIND_COLOURS = {AUTOREGRESSIVE: PURPLE, SELF_DRAFT: BLUE, DRAFT: GREEN, COMPRESSION: ORANGE}

#: What a person calls each kind.
KIND_TITLES = {
    AUTOREGRESSIVE: "16-bit decoding",
    SELF_DRAFT: "self-drafts",
    DRAFT: "other drafts",
    COMPRESSION: "compression without a draft",
}


@styled
def speedups_figure(result: CompareResult) -> Figure | None:
    """A bar for each, the fastest on top."""
    rows = {name: each for name, each in by_speed(result).items() if each.speedup_vs_bf16_ar.number is not None}
    if not rows:
        return None
    figure = new_figure(
        "Speed of every way to decode",
        f"{provenance(result)}; tokens per cycle counted, times predicted; 95 % intervals over prompts",
        height_inches=1.1 + 0.27 * len(rows),
    )
    axes = figure.add_subplot()
    axes.grid(True, axis="x")
    ends = []
    told: set[str] = set()
    for place, each in enumerate(rows.values()):
        kind, speed = str(each.kind), each.speedup_vs_bf16_ar.known
        label = None if kind in told else KIND_TITLES.get(kind, kind)
        told.add(kind)
        strength = 0.45 if each.changes_output else 0.95
        axes.barh(place, speed, color=KIND_COLOURS.get(kind, INK), alpha=strength, label=label, height=0.74)
        low, high = each.speedup_low.number, each.speedup_high.number
        ends.append(speed if high is None else max(high, speed))
        if low is not None and high is not None:
            span = np.array([[max(speed - low, 0.0)], [max(high - speed, 0.0)]])
            axes.errorbar([speed], [place], xerr=span, fmt="none", ecolor=INK, elinewidth=1.1, capsize=2.5)
        axes.annotate(f"{speed:.2f}x", (ends[-1], place), (5, -3), textcoords="offset points", fontsize=8)
    axes.axvline(1.0, color=INK, linewidth=1.0, linestyle="--")
    axes.set_yticks(np.arange(len(rows)), list(rows))
    axes.invert_yaxis()
    axes.set_xlim(limits_from_zero([1.0, *ends], room=1.12))
    axes.set_xlabel("speed over 16-bit autoregressive decoding")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure
