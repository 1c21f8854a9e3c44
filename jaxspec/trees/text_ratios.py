"""Ratios of totals over texts, as tokens per cycle, and how sure they are when the texts are a sample.

What is counted along one text hangs together, so that texts, not cycles, are the independent units. A ratio of totals weighs
texts by their denominators; its standard error follows by linearization (the delta method), which here takes the form of one
number per text whose mean is the ratio and whose spread is its error. Ratios of the same texts are compared text by text.

Source: Cochran, Sampling Techniques, 3rd edition 1977, chapters 6 (ratio estimators) and 9A (clusters of unequal sizes).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc
from jaxtyping import Array, Float, Num

__all__ = ["PairedDifference", "RatioOfTotals", "error_of_mean", "paired_difference", "ratio_of_totals"]


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


class PairedDifference(NamedTuple):
    """The first ratio minus the second, of the same texts.

    Attributes:
        per_text: differences of the texts' numbers.
        gain: their mean, which is the difference of the two ratios.
        standard_error: of the gain; NaN for one text.
        p_value: one-sided: chance of a gain as large as this one, or larger, if the true gain were 0 (Student's t).
    """

    per_text: Float[Array, "*b text"]
    gain: Float[Array, "*b"]
    standard_error: Float[Array, "*b"]
    p_value: Float[Array, "*b"]


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


def paired_difference(first: RatioOfTotals, second: RatioOfTotals, *, over_sizes: bool = False) -> PairedDifference:
    """Difference of the first ratio from the second, text by text.

    Args:
        first, second: of the same texts in the same order.
        over_sizes: average over all leading axes first, as over the sizes of a tree. Sizes of one text err together; their
            average is again one number per text.
    Raises:
        ValueError: shapes that differ.
    Source: Student's paired t-test on the texts' numbers.
    """
    if first.per_text.shape != second.per_text.shape:
        raise ValueError(
            f"the ratios have shapes {first.per_text.shape} and {second.per_text.shape}; compare the same texts and sizes"
        )
    per_text = first.per_text - second.per_text
    if over_sizes:
        per_text = jnp.mean(per_text, axis=tuple(range(per_text.ndim - 1)))
    gain, error = jnp.mean(per_text, axis=-1), error_of_mean(per_text)
    return PairedDifference(per_text, gain, error, _upper_tail(gain, error, per_text.shape[-1] - 1))


def error_of_mean(per_text: Float[Array | np.ndarray, "*b text"]) -> Float[Any, "*b"]:
    """Standard error of the mean of one number per text, texts taken as independent; NaN for one text."""
    xp: Any = per_text.__array_namespace__()
    texts = per_text.shape[-1]
    if texts == 1:
        return xp.full(per_text.shape[:-1], xp.nan, dtype=per_text.dtype)
    return xp.std(per_text, axis=-1, ddof=1) / texts**0.5


def _upper_tail(gain: Float[Array, "*b"], error: Float[Array, "*b"], degrees: int) -> Float[Array, "*b"]:
    """P(Student's t > gain / error); 1/2 for no gain of no error, as where both ratios are the same."""
    if degrees == 0:
        return jnp.full_like(gain, jnp.nan)
    certain = jnp.where(gain > 0, 0.0, jnp.where(gain < 0, 1.0, jnp.where(gain == 0, 0.5, jnp.nan))).astype(gain.dtype)
    t_squared = (gain / jnp.where(error > 0, error, 1.0)) ** 2
    half = jnp.asarray(0.5, gain.dtype)
    tail = half * betainc(jnp.full_like(gain, degrees / 2), half, degrees / (degrees + t_squared))
    return jnp.where(error > 0, jnp.where(gain > 0, tail, 1 - tail), certain)
