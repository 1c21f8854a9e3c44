"""Figure of draft lengths along a trace: speedup by batch, fixed, by rule, and the best way."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from jaxspec.report.figures.style import BLUE, VERMILLION, legend_below, new_figure, styled

__all__ = ["speedup_figure"]


@styled
def speedup_figure(result: dict[str, Any]) -> Figure:
    """A panel for each data set; bars are 90 % intervals over requests."""
    sets, batches = result["speedups"], result["settings"]["batches"]
    drafters = result["settings"]["drafters"]
    who = drafters[0] if len(drafters) == 1 else "any drafter"
    lines = [(f"fixed, {name}", "0.5", style) for name, style in zip(drafters, (":", "-.", "--"))]
    lines += [(f"fastest at recent rates, {who}", BLUE, "-"), (f"best way, {who}", VERMILLION, "-")]
    figure = new_figure(
        "Draft lengths along an acceptance trace",
        f"speedup over no draft by batch, {result['settings']['device']} with {result['settings']['engine']} (predicted)",
        height_inches=3.4,
    )
    panels = figure.subplots(1, len(sets), squeeze=False, sharey=True)[0]
    for axes, (dataset, found) in zip(panels, sets.items(), strict=True):
        for rule, color, style in lines:
            middle, low, high = (np.array(found[rule][name]) for name in ("speedup", "low", "high"))
            ends = [middle - low, high - middle]
            axes.errorbar(batches, middle, yerr=ends, color=color, linestyle=style, capsize=2, label=rule)
        axes.axhline(1.0, color="0.6", lw=0.8, zorder=0)
        axes.set_xscale("log", base=2)
        axes.set_xticks(batches, list(map(str, batches)))
        axes.tick_params(axis="x", labelsize="x-small")
        axes.set(xlabel="batch", title=dataset)
    panels[0].set(ylabel="speedup over no draft")
    legend_below(figure, panels[0])
    return figure
