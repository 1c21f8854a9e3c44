"""Counts of decoding turned into acceptance, tokens per cycle and intervals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_RESAMPLES = 2000


class Interval(NamedTuple):
    """A ratio with its central 95 % bootstrap interval."""

    ratio: float
    low: float
    high: float


def acceptance(accepted_at: np.ndarray, cycles: np.ndarray, draft_length: int) -> dict[str, object]:
    """Acceptance rates from counts.

    Args:
        accepted_at: "prompt depth", cycles in which token d was accepted. cycles: "prompt".
    Returns:
        alpha_token, alpha_fraction, conditional (see the glossary).
    """
    accepted = accepted_at[:, :draft_length].sum(axis=0).astype(np.float64)
    reached = np.concatenate([[cycles.sum()], accepted[:-1]])
    conditional = np.divide(accepted, reached, out=np.full(draft_length, np.nan), where=reached > 0)
    return {
        "alpha_token": float(accepted.sum() / reached.sum()),
        "alpha_fraction": float(accepted.sum() / (draft_length * cycles.sum())),
        "conditional": conditional.tolist(),
    }


def _resampled(count: int, seed: int) -> np.ndarray:
    """Bootstrap weights, "resample prompt"."""
    rng = np.random.default_rng([seed, count, _RESAMPLES])
    return rng.multinomial(count, np.full(count, 1 / count), size=_RESAMPLES).astype(np.float64)


def gap_in_standard_errors(
    tokens: np.ndarray, cycles: np.ndarray, predicted_tokens: np.ndarray, predicted_cycles: np.ndarray, seed: int
) -> tuple[float, float]:
    """Standard error of the counted tokens per cycle, and the gap to the predicted in standard errors.

    All arrays are per prompt. The gap's error is that of the difference on resampled prompts, but at least that of the count,
    so that a deterministic prediction is not held against its own rounding.
    """
    weights = _resampled(len(tokens), seed)
    counted = (weights @ tokens) / (weights @ cycles)
    predicted = (weights @ predicted_tokens) / (weights @ predicted_cycles)
    error = float(np.std(counted))
    gap = tokens.sum() / cycles.sum() - predicted_tokens.sum() / predicted_cycles.sum()
    scale = max(error, float(np.std(counted - predicted)), 1e-9)
    return error, float(abs(gap) / scale)


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
