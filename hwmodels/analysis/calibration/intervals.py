"""Intervals of predicted times from the errors of rows that were held out of the fit.

Of a table the interval runs between quantiles of log(measured / predicted) of its held-out rows. Whether it covers what it says
is seen on the other half of the table: quantiles of the rows of half of the groups, counted on those of the other half.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hwmodels.analysis.calibration.splits import half_of_groups

__all__ = ["COVERAGE", "interval_record"]

#: Probability that an interval is to cover a new measurement with.
COVERAGE = 0.90


def interval_record(
    predicted_s: npt.ArrayLike, measured_s: npt.ArrayLike, held_out: npt.ArrayLike, groups: Sequence[str]
) -> dict[str, Any]:
    """Ends of the interval as factors of a predicted time, and the share of rows that those of other groups cover.

    Args:
        predicted_s, measured_s: "row", > 0.
        held_out: "row", true where the fit behind the prediction has not seen the row.
        groups: "row", names of rows that err together, as those of one shape.
    """
    used = np.asarray(held_out, bool)
    logs = np.log(np.asarray(measured_s, np.float64)[used] / np.asarray(predicted_s, np.float64)[used])
    first = half_of_groups([name for name, one in zip(groups, used) if one], seed=1)
    ends = (0.5 - COVERAGE / 2, 0.5 + COVERAGE / 2)
    covered = []
    for half in (first, ~first):
        if half.any() and (~half).any():
            low, high = np.quantile(logs[half], ends)
            covered.append(float(np.mean((logs[~half] >= low) & (logs[~half] <= high))))
    low, high = np.exp(np.quantile(logs, ends))
    return {"coverage": COVERAGE, "low": float(low), "high": float(high), "covered": covered}
