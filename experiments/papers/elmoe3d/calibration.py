"""The fit: least squares on the logarithms of one half of Table 3, the 8 GB half unless told otherwise."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from experiments.papers.elmoe3d.fitted import BOUNDS, PER_MODEL, Fitted, Variant, from_names, names_of
from experiments.papers.elmoe3d.model import speedups
from experiments.papers.elmoe3d.printed import table_three

__all__ = ["FITTED_HALF", "Fit", "fit", "fitted_numbers"]

#: Gigabytes of the half that is fitted; the other is predicted.
FITTED_HALF = 8

#: Relative error that counts as one residual: speedups are printed to 0.01, and cycles leave more to be chosen than steps.
_SCALE_ALONE = 0.015
_SCALE_TOGETHER = 0.05


class Fit(NamedTuple):
    """Fitted numbers by name, and as arrays."""

    numbers: dict[str, float]
    fitted: Fitted
    variant: Variant
    half_gb: int


@functools.cache
def fit(variant: Variant = Variant(), half_gb: int = FITTED_HALF) -> Fit:
    """Robust least squares from one start.

    Args:
        half_gb: capacity whose cells are fitted; cells that contradict their row are left out.
    """
    printed, names = table_three(half_gb), names_of()
    fields = [name.split()[0] for name in names]
    start, low, high = np.array([BOUNDS[field] for field in fields]).T
    certain = ~printed.flagged

    def residuals(x: np.ndarray) -> np.ndarray:
        found = speedups(from_names(dict(zip(names, x, strict=True))), half_gb, printed.acceptance, variant)
        alone = np.log(np.asarray(found.autoregressive, np.float64) / printed.autoregressive)
        together = np.log(np.asarray(found.speculative, np.float64) / printed.speculative)
        return np.concatenate([(alone * certain).ravel() / _SCALE_ALONE, together.ravel() / _SCALE_TOGETHER])

    # Steps wide enough for tiles, which are counted whole, and single precision.
    solved = least_squares(
        residuals, start, bounds=(low, high), loss="soft_l1", x_scale=start, diff_step=1e-3, xtol=1e-5, ftol=1e-6
    )
    numbers = dict(zip(names, map(float, solved.x), strict=True))
    return Fit(numbers, from_names(numbers), variant, half_gb)


def fitted_numbers() -> dict[str, float]:
    """The model's sixteen numbers by name."""
    return fit().numbers
