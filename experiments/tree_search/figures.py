"""The paper's Fig. 5 and Fig. 6 for our own network: measured curves with the law, and the searches side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.tree_search.comparison import PRIOR
from jaxspec.report.figures.style import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILLION, new_figure, styled

__all__ = ["law_figure", "search_figure"]

_COLOURS = (BLUE, GREEN, ORANGE, VERMILLION, PURPLE, SKY)
_SEARCH_COLOURS = {PRIOR: BLUE, "width": ORANGE, "depth": GREEN, "independent": PURPLE}


@styled
def law_figure(draft: str, entries: Sequence[Mapping[str, Any]]) -> Figure:
    """Fig. 5: tokens per cycle over the verification length at each context, with the law from five lengths."""
    figure = new_figure(
        f"Tokens per cycle and the AAT law: {draft} drafts for the embedded network",
        "Points: measured on held-out text, prior-score trees, bars of one standard error over prompts. Circles: the five "
        "lengths that A + B ln(x - C) was fitted to.",
        height_inches=0.9 + 2.9 * -(-len(entries) // 2),
    )
    axes = np.atleast_1d(figure.subplots(-(-len(entries) // 2), 2, sharex=True, sharey=True, squeeze=False)).ravel()
    for axis, entry, colour in zip(axes, entries, _COLOURS, strict=False):
        lengths = np.asarray(entry["verification_length"])
        tokens = np.asarray(entry["tokens_per_cycle"][PRIOR])
        law = entry["law"]
        axis.errorbar(
            lengths, tokens, yerr=entry["standard_error"][PRIOR], fmt=".", color=colour, alpha=0.55, markersize=4
        )
        fitted = np.isin(lengths, law["fitted_at"])
        axis.plot(lengths[fitted], tokens[fitted], "o", color=INK, markerfacecolor="none", markersize=8)
        axis.plot(lengths, law["A"] + law["B"] * np.log(lengths - law["C"]), color=INK, linewidth=1.2)
        words = f"{law['A']:.2f} + {law['B']:.2f} ln(x - {law['C']:.2f}),  R² = {law['r_squared']:.3f}"
        axis.set_title(f"context {entry['context_tokens']}:  {words}", loc="left", fontsize=9)
        axis.grid(True)
    for axis in axes[len(entries) :]:
        axis.set_visible(False)
    for axis in axes[-2:]:
        axis.set_xlabel("verification length x, tokens")
    for axis in axes[::2]:
        axis.set_ylabel("tokens per cycle")
    return figure


@styled
def search_figure(draft: str, entries: Sequence[Mapping[str, Any]], context: int) -> Figure:
    """Fig. 6: the searches' curves at one context, and by how much the prior score leads at each."""
    entry = next(entry for entry in entries if entry["context_tokens"] == context)
    figure = new_figure(
        f"Tree searches: {draft} drafts for the embedded network, context {context}",
        "Left: tokens per cycle on held-out text; trees were chosen on calibration text. Right: what the prior score gains "
        "over the others, text by text, with a band of two standard errors.",
        height_inches=4.6,
    )
    curves, leads = figure.subplots(1, 2)
    lengths = np.asarray(entry["verification_length"])
    for name, tokens in entry["tokens_per_cycle"].items():
        curves.plot(lengths, tokens, color=_SEARCH_COLOURS[name], label=name, linewidth=1.8 if name == PRIOR else 1.2)
    for name, lead in entry["prior_score_leads"].items():
        gain, error = np.asarray(lead["gain"]), np.asarray(lead["standard_error"])
        colour = _SEARCH_COLOURS[name]
        leads.plot(
            lengths, gain, color=colour, label=f"over {name}: mean {lead['mean_gain']:+.3f}, p = {lead['p_value']:.1g}"
        )
        leads.fill_between(lengths, gain - 2 * error, gain + 2 * error, color=colour, alpha=0.18, linewidth=0)
    leads.axhline(0, color=INK, linewidth=0.8)
    for axis, label in ((curves, "tokens per cycle"), (leads, "tokens per cycle gained")):
        axis.set_xlabel("verification length x, tokens")
        axis.set_ylabel(label)
        axis.grid(True)
        axis.legend(fontsize=8)
    return figure
