"""Measured speedups of Fig. 1 beside predicted ones."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from experiments.papers.performance_or_illusion.model import DATASETS, HEAD
from experiments.reproduce.paper import ComparedCell
from jaxspec.report.figure_style import BLUE, VERMILLION, legend_below, new_figure, styled

__all__ = ["speedups_figure"]


@styled
def speedups_figure(rows: Sequence[ComparedCell]) -> Figure:
    """A panel for each data set. Args: rows: of Fig. 1."""
    figure = new_figure(
        "Llama-3.1-8B on an H100 with vLLM",
        "speedup by batch: marks measured by the paper's authors, lines predicted",
        height_inches=3.2,
    )
    panels = figure.subplots(1, len(DATASETS), sharey=True)
    for axes, dataset in zip(panels, DATASETS, strict=True):
        for drafter, color, label in ((HEAD, BLUE, "EAGLE-3 head"), ("ngram", VERMILLION, "lookup")):
            own = [
                row
                for row in rows
                if (row["conditions"]["dataset"], row["conditions"]["drafter"]) == (dataset, drafter)
            ]
            own = [row for row in own if row["conditions"]["policy"] == "3"]
            batches = [int(row["conditions"]["batch"]) for row in own]
            axes.plot(batches, [row["model_value"] for row in own], color=color, label=f"{label}, predicted")
            axes.plot(batches, [row["paper_value"] for row in own], "o", color=color, label=f"{label}, measured")
        axes.axhline(1.0, color="0.6", lw=0.8, zorder=0)
        axes.set_xscale("log", base=2)
        axes.set_xticks([1, 16, 64, 128], ["1", "16", "64", "128"])
        axes.set(xlabel="batch", title=dataset)
    panels[0].set(ylabel="speedup, 3 drafted tokens")
    legend_below(figure, panels[0])
    return figure
