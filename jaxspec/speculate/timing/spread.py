"""Repeated measurements: median, interval, and whether they are too noisy to be believed."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

__all__ = ["BELIEVABLE", "SHARE", "Spread", "noise_of", "spread_of"]

#: Share of the repeats within an interval.
SHARE = 0.9

#: Largest relative standard error of a median that is believed.
BELIEVABLE = 0.03

#: Standard deviations of a normal distribution in a median absolute deviation, and of a median in one of a mean.
_DEVIATION, _OF_MEDIAN = 1.4826, 1.2533

#: Fewer samples have no median absolute deviation worth the name.
_FEW = 5


class Spread(NamedTuple):
    """Median of repeats, and the interval that holds 90 % of them; unknown values are NaN."""

    median: float
    low: float
    high: float


def spread_of(samples: Float[np.ndarray, " repeat"]) -> Spread:
    """Median and interval of those samples that are numbers.

    Args:
        samples: of what is never negative. Negative ones are differences of times that are lost in their noise, infinite ones
            are rates that such a time allows, −infinite ones ratios over such a time: they have their place in the order, and
            an end of the interval that falls on them is not known.
    """
    known = np.sort(np.asarray(samples)[~np.isnan(samples)])
    finite = np.isfinite(known)
    if not finite.any():
        return Spread(math.nan, math.nan, math.nan)
    places = [(1 - SHARE) / 2, 0.5, (1 + SHARE) / 2]
    bounded = np.clip(known, known[finite][0], known[finite][-1])  # infinities have no weighted mean with a neighbour
    values = np.quantile(bounded, places)
    neighbours = (np.quantile(known, places, method=side) for side in ("lower", "higher"))
    certain = np.all([np.isfinite(each) for each in neighbours], axis=0) & (values >= 0.0)
    low, median, high = (float(value) if sure else math.nan for value, sure in zip(values, certain, strict=True))
    return Spread(low=low, median=median, high=high)


def noise_of(samples: Float[np.ndarray, " repeat"]) -> float:
    """Relative standard error of the median; infinite of fewer than 3 known samples, and of a median that is not positive.

    By the median absolute deviation, which outliers leave alone; by the whole range where samples are too few for it.
    """
    known = np.asarray(samples)[~np.isnan(samples)]
    median = spread_of(known).median
    if known.size < 3 or not median > 0.0:
        return math.inf
    by_median = lambda: _DEVIATION * np.median(np.abs(known - median))
    deviation = np.ptp(known) / 2.0 if known.size < _FEW else by_median()
    return float(_OF_MEDIAN * deviation / math.sqrt(known.size) / median)
