"""Everything that is solved once: the fit, both halves of Table 3, and the variants beside them."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from experiments.papers.elmoe3d.calibration import FITTED_HALF, Fit, fit
from experiments.papers.elmoe3d.fitted import MODEL, Variant
from experiments.papers.elmoe3d.model import Speedups, speedups
from experiments.papers.elmoe3d.printed import CAPACITIES, METHODS, TableThree, table_three

__all__ = ["Choice", "Errors", "Solved", "choices", "errors_of", "solve", "spread"]


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
    found = fit(variant, half_gb)
    return Solved(found, {gb: speedups(found.fitted, gb, variant) for gb in CAPACITIES})


def errors_of(solved: Solved, capacity_gb: int) -> Errors:
    """Model over printed, less 1."""
    printed, found = table_three(capacity_gb), solved.halves[capacity_gb]
    alone = np.where(printed.flagged, np.nan, found.autoregressive / printed.autoregressive - 1.0)
    return Errors(alone, found.speculative / printed.speculative - 1.0)


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
