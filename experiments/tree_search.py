"""Searches of draft trees compared on recorded ranks, text by text, for every size of tree; the AAT law from five sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from jaxspec.report.figures.style import BLUE, GREEN, INK, ORANGE, PURPLE, new_figure, styled
from jaxspec.studies.tree.stages import Search, grow
from jaxspec.trees.aat_fit import fit_aat_law
from jaxspec.trees.aat_law import r_squared
from jaxspec.trees.rank_traces import AATBySize, RankTraces, aat_by_size
from jaxspec.trees.ranked_tree import RankedTree
from jaxspec.trees.searches import maximal_tree
from jaxspec.trees.text_ratios import paired_difference

__all__ = [
    "BASELINES",
    "LAW_LENGTHS",
    "PRIOR",
    "Recorded",
    "Settings",
    "compare",
    "law_entry",
    "search_figure",
    "tree_growths",
]


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is measured."""

    contexts: tuple[int, ...] = (64, 128, 256, 384)  # tokens of a prompt
    prompts: int = 96  # held out, at each context
    calibration_prompts: int = 384  # at each context: late nodes are rarely accepted, and few texts order them badly
    output_tokens: int = 64  # decoded after each
    nodes: int = 63  # of the maximal tree, without the root
    depth: int = 8  # its levels
    seed: int = 0

    @property
    def recorded_tokens(self) -> int:
        """Tokens after a prompt, so that the last cycle's ranks are known down to the tree's depth."""
        return self.output_tokens + self.depth + 1


class Recorded(NamedTuple):
    """Ranks of one draft, at one context or (None) at all of them."""

    context: int | None
    calibration: RankTraces
    held_out: RankTraces


PRIOR = "prior score"
BASELINES = ("width", "depth")

#: Searches of `jaxspec tree` by their names here.
_SEARCHES: dict[str, Search] = {PRIOR: "prior", "width": "width", "depth": "depth", "independent": "greedy"}

#: Verification lengths that the law is fitted to, spread evenly over their logarithms; all others check it.
LAW_LENGTHS = (2, 5, 12, 28, 64)

#: Ranks in the table of independent chances; later guesses are hardly ever right.
_TABLE_RANKS = 16


def tree_growths(recorded: Recorded, settings: Settings) -> dict[str, RankedTree]:
    """The searches, each from calibration text alone. Width and depth order the maximal tree without looking at text.

    "independent" grows by the largest product of chances, the optimum if acceptance at each depth and rank were independent.
    """
    maximal = maximal_tree(settings.nodes, depth=settings.depth)
    return {
        name: grow(
            search,
            None if search == "greedy" else maximal,
            recorded.calibration,
            nodes=settings.nodes,
            depth=settings.depth,
            vocabulary=_TABLE_RANKS,
            num_tokens=settings.output_tokens,
        )
        for name, search in _SEARCHES.items()
    }


def compare(recorded: Recorded, growths: dict[str, RankedTree], settings: Settings) -> dict[str, Any]:
    """Curves of all searches on held-out text, and by how much the prior score leads each of the others."""
    curves = {
        name: aat_by_size(growth, recorded.held_out, num_tokens=settings.output_tokens)
        for name, growth in growths.items()
    }
    lengths = np.asarray(curves[PRIOR].verification_length)
    return {
        "context_tokens": recorded.context,
        "verification_length": lengths.tolist(),
        "tokens_per_cycle": {name: _floats(curve.aat.mean) for name, curve in curves.items()},
        "standard_error": {name: _floats(curve.aat.standard_error) for name, curve in curves.items()},
        "prior_score_leads": {name: _lead(curves[PRIOR], curve) for name, curve in curves.items() if name != PRIOR},
        "law": law_entry(lengths, np.asarray(curves[PRIOR].aat.mean, np.float64)),
    }


def _floats(values: Any) -> list[float]:
    return [float(value) for value in np.asarray(values)]


def _lead(prior: AATBySize, other: AATBySize) -> dict[str, Any]:
    by_size = paired_difference(prior.aat, other.aat)
    mean = paired_difference(prior.aat, other.aat, over_sizes=True)
    gain, error = np.asarray(by_size.gain, np.float64), np.asarray(by_size.standard_error, np.float64)
    # Two trees that accept the same in every text differ by 0, of no error.
    in_errors = np.divide(gain, error, out=np.zeros_like(gain), where=error > 0)
    lowest = int(np.argmin(in_errors))
    return {
        "gain": _floats(gain),
        "standard_error": _floats(error),
        "lowest_in_standard_errors": float(in_errors[lowest]),
        "lowest_at": lowest + 2,
        "mean_gain": float(mean.gain),
        "mean_standard_error": float(mean.standard_error),
        "p_value": float(mean.p_value),
    }


def law_entry(lengths: np.ndarray, tokens: np.ndarray) -> dict[str, Any]:
    """The law from `LAW_LENGTHS` (those that were measured), and R² on all lengths and on those it was not fitted to."""
    chosen = np.isin(lengths, LAW_LENGTHS)
    fit = fit_aat_law(lengths[chosen], tokens[chosen])
    return {
        "fitted_at": lengths[chosen].tolist(),
        "A": float(fit.law.intercept),
        "B": float(fit.law.log_slope),
        "C": float(fit.law.shift),
        "intervals": np.asarray(fit.intervals).tolist(),
        "r_squared": r_squared(fit.law, lengths, tokens),
        "r_squared_elsewhere": r_squared(fit.law, lengths[~chosen], tokens[~chosen]),
    }


_SEARCH_COLOURS = {PRIOR: BLUE, "width": ORANGE, "depth": GREEN, "independent": PURPLE}


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
