"""What repeated measurements say: median, interval, and whether they are too noisy to be believed."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

__all__ = ["BELIEVABLE", "SHARE", "Spread", "noise_of", "spread_of"]

#: Share of the repeats that lie within an interval.
SHARE = 0.9

#: Largest relative standard error of a median that is believed.
BELIEVABLE = 0.03

#: Standard deviations of a normal distribution in a median absolute deviation, and of a median in one of a mean.
_DEVIATION, _OF_MEDIAN = 1.4826, 1.2533

#: Fewer samples have no median absolute deviation worth the name.
_FEW = 5


class Spread(NamedTuple):
    """Median of repeats, and the interval in which 90 % of them lie; not a number where there are none."""

    median: float
    low: float
    high: float


def spread_of(samples: Float[np.ndarray, " repeat"]) -> Spread:
    """Median and interval of those samples that are finite."""
    known = np.asarray(samples)[np.isfinite(samples)]
    if not known.size:
        return Spread(math.nan, math.nan, math.nan)
    low, median, high = np.quantile(known, [(1 - SHARE) / 2, 0.5, (1 + SHARE) / 2])
    return Spread(float(median), float(low), float(high))


def noise_of(samples: Float[np.ndarray, " repeat"]) -> float:
    """Relative standard error of the median; infinite of fewer than 3 known samples.

    By the median absolute deviation, which outliers leave alone; by the whole range where samples are too few for it.
    """
    known = np.asarray(samples)[np.isfinite(samples)]
    if known.size < 3 or not np.median(known):
        return math.inf
    if known.size < _FEW:
        deviation = float(np.ptp(known)) / 2.0
    else:
        deviation = _DEVIATION * float(np.median(np.abs(known - np.median(known))))
    return float(_OF_MEDIAN * deviation / math.sqrt(known.size) / abs(np.median(known)))
