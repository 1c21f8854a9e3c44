"""Fig. 7, 12 and 14. Matplotlib figures, not yet saved."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.papers.cassandra import capacity
from experiments.papers.cassandra.area_power import printed_value
from experiments.papers.cassandra.speedups import BENCHMARKS, DEVICES, FROZEN, METHODS, MODELS, PRUNED_CODED, speedups
from experiments.reproduce.paper import paper_figure
from jaxspec.report.figure_style import BLUE, GREEN, INK, ORANGE, SKY, VERMILLION, styled

__all__ = ["capacity_figure", "speedup_figure", "trade_off_figure"]

_COLOURS = {"VP": ORANGE, "MT": GREEN, "VP+MT": BLUE}
_NAMES = {"VP": "pruning alone", "MT": "truncation alone", "VP+MT": "both"}


_figure = functools.partial(paper_figure, Path(__file__).parent)


@styled
def trade_off_figure(measured: dict[str, Any]) -> Figure:
    """Fig. 7 (a): acceptance against compression, a panel for each network."""
    figure = _figure("trade_off")
    panels = figure.subplots(1, len(measured), sharey=True)
    for axes, (model, one) in zip(panels, measured.items(), strict=True):
        for name, rows in one["drafts"].items():
            x, y = ([row[key] for row in rows] for key in ("compression", "alpha_fraction"))
            line = "" if name == "VP+MT" else "-"
            axes.plot(x, y, f"o{line}", color=_COLOURS[name], markersize=3, label=_NAMES[name])
        best = one["equal_compression"]
        axes.plot([row["compression"] for row in best], [row["VP+MT"] for row in best], color=BLUE)
        axes.set(title=model, xlabel="compression of the draft's weights", ylim=(0, 1.02))
        axes.grid(True)
    panels[0].set_ylabel("accepted fraction")
    panels[-1].legend()
    return figure


@styled
def speedup_figure() -> Figure:
    """Fig. 12: one panel per device and method; bars by benchmark and model, the alternative as a mark."""
    speedup, coded = speedups(FROZEN).speedup, speedups(PRUNED_CODED).speedup
    low, high = (printed_value("claims", claim_id=claim) for claim in ("CAS002", "CAS001"))
    figure = _figure("speedup")
    axes = figure.subplots(len(METHODS), len(DEVICES), sharey=True, sharex=True)
    places = np.arange(len(BENCHMARKS))
    for column, device in enumerate(DEVICES):
        for row, method in enumerate(METHODS):
            panel = axes[row, column]
            for number, (model, colour) in enumerate(zip(MODELS, (BLUE, SKY, ORANGE), strict=True)):
                x = places + 0.26 * (number - 1)
                panel.bar(x, speedup[column, row, number], 0.24, color=colour, label=model)
                panel.plot(x, coded[column, row, number], "_", color=INK, markersize=7)
            for end in (low, high):
                panel.axhline(end, color=VERMILLION, linewidth=0.8)
            panel.set_title(f"{device}, {method}", fontsize=8)
            panel.set_xticks(places, BENCHMARKS, rotation=25, fontsize=7)
            panel.set_ylim(1.0, 2.6)
    axes[0, 0].legend(fontsize=7)
    return figure


@styled
def capacity_figure() -> Figure:
    """Fig. 14: both ratios at the budget that suits each reading best."""
    figure = _figure("capacity")
    axes = figure.subplots()
    for draft, colour in zip(capacity.DRAFTS, (ORANGE, BLUE), strict=True):
        ratios = np.array([reading.ratios for reading in capacity.readings() if reading.draft == draft])
        axes.plot(ratios[:, 0], ratios[:, 1], "o", color=colour, label=draft)
    printed = [printed_value("claims", claim_id=claim) for claim in ("CAS004", "CAS005")]
    axes.plot(*printed, "x", color=VERMILLION, markersize=9, label="printed")
    axes.set(xlabel="over a separate draft", ylabel="over Eagle-3")
    axes.legend()
    axes.grid(True)
    return figure
