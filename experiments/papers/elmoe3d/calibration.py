"""The fit: least squares on the logarithms of one half of Table 3, the 8 GB half unless told otherwise."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from experiments.papers.elmoe3d.fitted import BOUNDS, MODEL, STARTS, Fitted, Variant, from_names, names_of
from experiments.papers.elmoe3d.model import all_speedups
from experiments.papers.elmoe3d.printed import table_three

__all__ = ["COMMITTED", "FITTED_HALF", "Fit", "fit", "fitted_numbers"]

#: Gigabytes of the half that is fitted; the other is predicted.
FITTED_HALF = 8

#: Relative error that counts as one residual: speedups are printed to 0.01, and cycles leave more to be chosen than steps.
_SCALE_ALONE = 0.015
_SCALE_TOGETHER = 0.05

#: Of the search's slopes, in parts of the start: wide enough for tiles, which are counted whole.
_STEP = 0.02


#: Numbers of the model, as it was fitted first: where the search of variants starts, and what a new fit is checked against.
COMMITTED = {
    "locality": (0.245, 0.384, 0.558, 0.197),
    "independence": (0.822, 0.951, 0.979, 0.711),
    "verified_tokens": (4.79, 9.66, 13.3, 2.984),
    "draft_share": 0.603,
    "speculative_independence": 0.690,
    "speculative_locality": 0.292,
    "fading": 0.858,
}


class Fit(NamedTuple):
    """Fitted numbers by name, and as arrays."""

    numbers: dict[str, float]
    fitted: Fitted
    variant: Variant
    half_gb: int


@functools.cache
def fit(variant: Variant = MODEL, half_gb: int = FITTED_HALF) -> Fit:
    """Robust least squares from one start.

    Args:
        half_gb: capacity whose cells are fitted; cells that contradict their row are left out.
    """
    printed, names = table_three(half_gb), names_of()
    fields = [name.split()[0] for name in names]
    start = np.array([STARTS[field] for field in fields])
    if (variant, half_gb) != (MODEL, FITTED_HALF):
        start = np.hstack(list(COMMITTED.values()))
    low, high = np.array([BOUNDS[field] for field in fields]).T
    certain = ~printed.flagged

    def residuals(rows: np.ndarray) -> np.ndarray:
        fitted = [from_names(dict(zip(names, x, strict=True))) for x in rows]
        found = []
        for one in all_speedups(fitted, half_gb, variant):
            alone = np.log(one.autoregressive / printed.autoregressive) * certain / _SCALE_ALONE
            together = np.log(one.speculative / printed.speculative) / _SCALE_TOGETHER
            found.append(np.concatenate([alone.ravel(), together.ravel()]))
        return np.array(found)

    def slopes(x: np.ndarray) -> np.ndarray:
        # Away from the nearer end; the point itself and all steps in one call.
        steps = np.where(x + _STEP * start > high, -_STEP, _STEP) * start
        found = residuals(np.vstack([x, x + np.diag(steps)]))
        return ((found[1:] - found[0]) / steps[:, None]).T

    solved = least_squares(
        lambda x: residuals(x[None])[0],
        start,
        jac=slopes,  # pyright: ignore[reportArgumentType]
        bounds=(low, high),
        loss="soft_l1",
        x_scale=start,
        xtol=1e-6,
        ftol=1e-8,
        max_nfev=80,
    )
    numbers = dict(zip(names, map(float, solved.x), strict=True))
    return Fit(numbers, from_names(numbers), variant, half_gb)


def fitted_numbers() -> dict[str, float]:
    """The model's sixteen numbers by name."""
    return fit().numbers
