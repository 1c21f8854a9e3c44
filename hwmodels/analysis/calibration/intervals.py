"""Intervals of predicted times from the errors of rows that were held out of the fit.

Of a table the interval runs between quantiles of log(measured / predicted) of its held-out rows. Whether it covers what it says
is seen on the other half of the table: quantiles of the rows of half of the groups, counted on those of the other half. Of
few groups, as networks or sizes of messages, halves tell more of the draw than of the interval, which has the rows of all: then
each group is also held against the quantiles of all others.

A new row is as likely to lie in each of the n + 1 gaps between and beside n rows that err as it does. So the quantile p is the
row of rank p (n + 1), between two of them interpolated: ranks i and j cover (j - i) / (n + 1) on average. The usual rank of a
sample's own quantile, 1 + p (n - 1), covers (n - 1) / (n + 1) of what it says, 87 % for 90 % of 63 rows.

Source: ranks of prediction intervals, as of conformal prediction (Vovk et al. 2005, Algorithmic Learning in a Random World).
Departs: interpolated, not rounded outwards, so that the coverage is the stated one on average, not at least.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hwmodels.analysis.calibration.splits import half_of_groups

__all__ = ["COVERAGE", "covered_left_out", "interval_record"]

#: Probability that an interval is to cover a new measurement with; of fewer than 19 rows (n - 1) / (n + 1), which is less.
COVERAGE = 0.90

_ENDS = (0.5 - COVERAGE / 2, 0.5 + COVERAGE / 2)


def interval_record(
    predicted_s: npt.ArrayLike,
    measured_s: npt.ArrayLike,
    held_out: npt.ArrayLike,
    groups: Sequence[str],
    *,
    few_groups: bool = False,
) -> dict[str, Any]:
    """Ends of the interval as factors of a predicted time, and the share of rows that those of the other half's groups cover.

    Args:
        predicted_s, measured_s: "row", > 0.
        held_out: "row", true where the fit behind the prediction has not seen the row.
        groups: "row", names of rows that err together, as those of one shape.
        few_groups: count what `covered_left_out` counts, too.
    """
    used = np.asarray(held_out, bool)
    logs = np.log(np.asarray(measured_s, np.float64)[used] / np.asarray(predicted_s, np.float64)[used])
    names = [name for name, one in zip(groups, used) if one]
    first = half_of_groups(names, seed=1)
    covered = []
    for half in (first, ~first):
        if half.any() and (~half).any():
            covered.append(float(np.mean(_inside(logs, half)[~half])))
    low, high = np.exp(_quantiles(logs))
    record: dict[str, Any] = {"coverage": COVERAGE, "low": float(low), "high": float(high), "covered": covered}
    return record | ({"covered_left_out": covered_left_out(logs, names)} if few_groups else {})


def covered_left_out(logs: npt.NDArray[np.float64], groups: Sequence[str]) -> float:
    """Share of the rows that lie between the quantiles of all rows of other groups, each group being left out in turn.

    Args:
        logs: "row", log(measured / predicted) of rows held out of the fit.
        groups: "row", as of `interval_record`; two or more.
    """
    names = np.asarray(groups)
    return float(np.sum([np.sum(_inside(logs, names != name)[names == name]) for name in set(groups)]) / len(logs))


def _inside(logs: npt.NDArray[np.float64], of: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which rows, "row", lie between the quantiles of some of them."""
    low, high = _quantiles(logs[of])
    return (logs >= low) & (logs <= high)


def _quantiles(logs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Ends that a new row lies between; those beyond the lowest or highest of few rows are this row."""
    return np.quantile(logs, _ENDS, method="weibull")
