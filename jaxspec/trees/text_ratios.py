"""Ratios of totals over texts, as tokens per cycle, and how sure they are when the texts are a sample.

What is counted along one text hangs together, so that texts, not cycles, are the independent units. A ratio of totals weighs
texts by their denominators; its standard error follows by linearization (the delta method), which here takes the form of one
number per text whose mean is the ratio and whose spread is its error.

Source: Cochran, Sampling Techniques, 3rd edition 1977, chapters 6 (ratio estimators) and 9A (clusters of unequal sizes).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float, Num

__all__ = ["RatioOfTotals", "error_of_mean", "ratio_of_totals"]


class RatioOfTotals(NamedTuple):
    """A ratio of two totals over texts.

    Attributes:
        mean: total over total; NaN where the denominators are all 0.
        standard_error: of the mean, texts taken as independent; NaN for one text.
        per_text: one number per text, in the unit of the ratio; their mean is `mean`, and the standard deviation of that mean
            is `standard_error`. Not the text's own ratio, unless all denominators are equal.
    """

    mean: Float[Array, "*b"]
    standard_error: Float[Array, "*b"]
    per_text: Float[Array, "*b text"]


def ratio_of_totals(
    numerator: Num[Array | np.ndarray, "*b text"], denominator: Num[Array | np.ndarray, "*b text"]
) -> RatioOfTotals:
    """Total over total, with a standard error over texts. NumPy arrays are computed on the host, in double precision.

    Args:
        numerator, denominator: "*b text", counts >= 0 of each text; totals of whole numbers must fit their type.
    Raises:
        ValueError: shapes that differ, or no text.
    """
    if numerator.shape != denominator.shape or numerator.ndim == 0 or numerator.shape[-1] == 0:
        raise ValueError(
            f"numerator has shape {numerator.shape} and denominator {denominator.shape}; give one of each per text"
        )
    xp: Any = numerator.__array_namespace__()
    as_float = lambda counts: counts.astype(xp.result_type(float))
    texts = numerator.shape[-1]
    below = as_float(xp.sum(denominator, axis=-1))
    mean = as_float(xp.sum(numerator, axis=-1)) / xp.where(below > 0, below, xp.nan)
    deviation = as_float(numerator) - mean[..., None] * as_float(denominator)
    per_text = mean[..., None] + deviation * (texts / xp.where(below > 0, below, xp.nan))[..., None]
    return RatioOfTotals(mean, error_of_mean(per_text), per_text)


def error_of_mean(per_text: Float[Array | np.ndarray, "*b text"]) -> Float[Any, "*b"]:
    """Standard error of the mean of one number per text, texts taken as independent; NaN for one text."""
    xp: Any = per_text.__array_namespace__()
    texts = per_text.shape[-1]
    if texts == 1:
        return xp.full(per_text.shape[:-1], xp.nan, dtype=per_text.dtype)
    return xp.std(per_text, axis=-1, ddof=1) / texts**0.5
