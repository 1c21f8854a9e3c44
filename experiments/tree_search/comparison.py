"""Tokens per cycle of every size of tree, by search; searches compared text by text; the AAT law from five sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.tree_search.recording import Recorded, Settings
from jaxspec.studies.tree.stages import Search, grow
from jaxspec.trees.aat_fit import fit_aat_law
from jaxspec.trees.aat_law import r_squared
from jaxspec.trees.rank_traces import AATBySize, aat_by_size
from jaxspec.trees.ranked_tree import RankedTree
from jaxspec.trees.searches import maximal_tree
from jaxspec.trees.text_ratios import paired_difference

__all__ = ["BASELINES", "LAW_LENGTHS", "PRIOR", "compare", "law_entry", "tree_growths"]

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
