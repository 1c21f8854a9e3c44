"""Counts of decoding turned into acceptance, tokens per cycle with their standard error, and intervals.

The standard error of tokens per cycle is that of `jaxspec.trees.text_ratios`, the same for chains, trees and recorded curves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxspec.trees.text_ratios import error_of_mean, ratio_of_totals

__all__ = ["ComparedCycles", "Interval", "acceptance_rates", "compare_cycles", "speedup_ratio"]

_RESAMPLES = 2000

#: Gaps are expressed in units of no less than this many tokens per cycle, so that rounding is none.
_LEAST_ERROR = 1e-9


class Interval(NamedTuple):
    """A ratio with its central 95 % bootstrap interval."""

    ratio: float
    low: float
    high: float


class ComparedCycles(NamedTuple):
    """Tokens per cycle, counted and predicted of the same prompts.

    Attributes:
        counted, predicted: total tokens over total cycles.
        standard_error: of the counted, prompts taken as independent; NaN for one prompt.
        gap_in_standard_errors: distance of the two, in standard errors of their difference on the same prompts, but at least
            of the count, so that a deterministic prediction is not held against its own rounding. NaN for one prompt, unless
            the two are equal.
    """

    counted: float
    predicted: float
    standard_error: float
    gap_in_standard_errors: float


def acceptance_rates(
    accepted_at: np.ndarray, ended_at: np.ndarray, cycles: np.ndarray, draft_length: int
) -> dict[str, object]:
    """Acceptance rates from counts.

    Args:
        accepted_at: "prompt depth", cycles in which token d was accepted. cycles: "prompt".
        ended_at: "prompt depth", cycles in which it stopped the text, so that no deeper token was tried.
    Returns:
        alpha_token, alpha_fraction, conditional (see the glossary).
    """
    accepted = accepted_at[:, :draft_length].sum(axis=0).astype(np.float64)
    reached = np.concatenate([[cycles.sum()], (accepted - ended_at[:, :draft_length].sum(axis=0))[:-1]])
    conditional = np.divide(accepted, reached, out=np.full(draft_length, np.nan), where=reached > 0)
    return {
        "alpha_token": float(accepted.sum() / reached.sum()),
        "alpha_fraction": float(accepted.sum() / (draft_length * cycles.sum())),
        "conditional": conditional.tolist(),
    }


def compare_cycles(
    tokens: np.ndarray, cycles: np.ndarray, predicted_tokens: np.ndarray, predicted_cycles: np.ndarray
) -> ComparedCycles:
    """Tokens per cycle counted and predicted, the standard error, and the gap between them.

    Args:
        tokens, cycles, predicted_tokens, predicted_cycles: " prompt".
    """
    wide = lambda values: np.asarray(values, np.float64)
    counted = ratio_of_totals(wide(tokens), wide(cycles))
    predicted = ratio_of_totals(wide(predicted_tokens), wide(predicted_cycles))
    gap, error = abs(float(counted.mean - predicted.mean)), float(counted.standard_error)
    scale = max(error, float(error_of_mean(counted.per_text - predicted.per_text)), _LEAST_ERROR)
    in_errors = gap / scale if len(tokens) > 1 else 0.0 if gap == 0 else float("nan")
    return ComparedCycles(float(counted.mean), float(predicted.mean), error, in_errors)


def _resampled(count: int, seed: int) -> np.ndarray:
    """Bootstrap weights, "resample prompt"."""
    rng = np.random.default_rng([seed, count, _RESAMPLES])
    return rng.multinomial(count, np.full(count, 1 / count), size=_RESAMPLES).astype(np.float64)


def speedup_ratio(
    ours: tuple[np.ndarray, np.ndarray, float], theirs: tuple[np.ndarray, np.ndarray, float], seed: int
) -> Interval:
    """Ratio of two drafts' speeds on the same prompts, with a bootstrap over prompts.

    Args:
        ours, theirs: (tokens per prompt, cycles per prompt, seconds per cycle).
    """

    def speed(weights, draft):
        tokens, cycles, cycle_s = draft
        return (weights @ tokens) / (weights @ cycles) / cycle_s

    once = np.ones((1, len(ours[0])))
    weights = _resampled(len(ours[0]), seed)
    ratios = speed(weights, ours) / speed(weights, theirs)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return Interval(float((speed(once, ours) / speed(once, theirs))[0]), float(low), float(high))
