"""Everything that is solved once: the fit, both halves of Table 3, and the variants beside them.

The fit: least squares on the logarithms of one half of Table 3, the 8 GB half unless told otherwise.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from experiments.papers.elmoe3d.fitted import BOUNDS, COMMITTED, MODEL, STARTS, Fitted, Variant, from_names, names_of
from experiments.papers.elmoe3d.model import Speedups, all_speedups, speedups
from experiments.papers.elmoe3d.printed import CAPACITIES, METHODS, TableThree, table_three

__all__ = ["FITTED_HALF", "Choice", "Errors", "Solved", "choices", "errors_of", "solve", "spread"]


#: Gigabytes of the half that is fitted; the other is predicted.
FITTED_HALF = 8

#: Relative error that counts as one residual: speedups are printed to 0.01, and cycles leave more to be chosen than steps.
_SCALE_ALONE = 0.015
_SCALE_TOGETHER = 0.05

#: Of the search's slopes, in parts of the start: wide enough for tiles, which are counted whole.
_STEP = 0.02


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
        distances = []
        for one in all_speedups(fitted, half_gb, variant):
            alone = np.log(one.autoregressive / printed.autoregressive) * certain / _SCALE_ALONE
            together = np.log(one.speculative / printed.speculative) / _SCALE_TOGETHER
            distances.append(np.concatenate([alone.ravel(), together.ravel()]))
        return np.array(distances)

    def slopes(x: np.ndarray) -> np.ndarray:
        # Away from the nearer end; the point itself and all steps in one call.
        steps = np.where(x + _STEP * start > high, -_STEP, _STEP) * start
        values = residuals(np.vstack([x, x + np.diag(steps)]))
        return ((values[1:] - values[0]) / steps[:, None]).T

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


class Solved(NamedTuple):
    """The model, and its speedups by capacity in gigabytes."""

    fit: Fit
    halves: dict[int, Speedups]


class Errors(NamedTuple):
    """Signed relative errors of a half, "model method batch"; cells that contradict their row are NaN."""

    autoregressive: npt.NDArray[np.float64]
    speculative: npt.NDArray[np.float64]


class Choice(NamedTuple):
    """What a reader decides by Table 3."""

    mode_right: int  # cells in which autoregressive decoding or speculation is rightly the faster one
    modes: int
    scheme_right: int  # columns whose best speculative scheme is found
    schemes: int
    best_mode: float  # mean of Elastic-SD's faster mode
    over_eagle: float  # Elastic-SD over EAGLE3 speculating, mean at batch 4 and more
    most_over_eagle: float


@functools.cache
def solve(variant: Variant = MODEL, half_gb: int = FITTED_HALF) -> Solved:
    """Fit to a half, and price both."""
    fitted = fit(variant, half_gb)
    return Solved(fitted, {gb: speedups(fitted.fitted, gb, variant) for gb in CAPACITIES})


def errors_of(solved: Solved, capacity_gb: int) -> Errors:
    """Model over printed, less 1."""
    printed, half = table_three(capacity_gb), solved.halves[capacity_gb]
    alone = np.where(printed.flagged, np.nan, half.autoregressive / printed.autoregressive - 1.0)
    return Errors(alone, half.speculative / printed.speculative - 1.0)


def spread(errors: npt.NDArray[np.float64]) -> dict[str, float]:
    """Median, 90th percentile and largest of the absolute errors that are known."""
    known = np.abs(errors[~np.isnan(errors)])
    return {"median": float(np.median(known)), "p90": float(np.percentile(known, 90)), "max": float(known.max())}


def choices(alone: npt.NDArray[np.float64], together: npt.NDArray[np.float64], capacity_gb: int) -> Choice:
    """Decisions by some speedups, beside those by the printed ones."""
    printed = table_three(capacity_gb)
    mode = (together > alone) == (printed.speculative > printed.autoregressive)
    scheme = together.argmax(axis=1) == printed.speculative.argmax(axis=1)
    eagle, elastic = METHODS.index("EAGLE3"), METHODS.index("Elastic-SD")
    over = together[:, elastic, 1:] / together[:, eagle, 1:]
    return Choice(
        int(mode.sum()),
        mode.size,
        int(scheme.sum()),
        scheme.size,
        float(np.maximum(alone, together)[:, elastic].mean()),
        float(over.mean()),
        float(over.max()),
    )


def printed_choices(capacity_gb: int, printed: TableThree | None = None) -> Choice:
    """The printed decisions."""
    printed = printed or table_three(capacity_gb)
    return choices(printed.autoregressive, printed.speculative, capacity_gb)
