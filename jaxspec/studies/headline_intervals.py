"""Intervals of a draft's main numbers: errors of kernels, of counted acceptance and of an engine's terms, carried through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from hwmodels.analysis.uncertainty.cycle_errors import CycleTimes, cycle_numbers
from hwmodels.analysis.uncertainty.delta_method import COVERAGE
from jaxspec.results import predicted
from jaxspec.results.intervals import Ends, HeadlineIntervals

__all__ = ["coverage_in_words", "covered", "headline_intervals"]

_numbers = jax.jit(cycle_numbers)

#: Kind of error -> what holds it, in words.
_WORDS = {
    "calibration": "errors of the device's kernels on shapes held out",
    "acceptance": "sampling of acceptance",
    "engine": "scatter of the engine's cycles",
}


def headline_intervals(
    times: CycleTimes, conditional: Sequence[float], standard_error: Sequence[float], *, batch: float
) -> HeadlineIntervals | None:
    """Intervals of one draft's numbers.

    Args:
        times, conditional, standard_error, batch: as `cycle_numbers` takes them; an error that is 0 or no number is none.
    Returns:
        None where nothing is known to err: the device is not calibrated and acceptance was given.
    """
    error = np.nan_to_num(np.asarray(standard_error, np.float32))
    covers = covered(times, error)
    if not covers:
        return None
    chances = np.asarray(conditional, np.float32)
    found = jax.device_get(_numbers(times, chances, np.diag(error), batch=np.float32(batch)))
    ends: dict[str, Any] = {name: number.ends(COVERAGE) for name, number in found.items()}
    return HeadlineIntervals(
        coverage=COVERAGE,
        covers=covers,
        statement=coverage_in_words(covers),
        **{name: Ends(low=predicted(float(low)), high=predicted(float(high))) for name, (low, high) in ends.items()},
    )


def covered(times: CycleTimes, standard_error: np.ndarray) -> list[str]:
    """Which errors are known, of those of `HeadlineIntervals.covers`."""
    known = {
        "calibration": np.any(np.asarray(times.deviation) > 0),
        "acceptance": np.any(standard_error > 0),
        "engine": np.any(np.asarray(times.scatter) > 0),
    }
    return [name for name, present in known.items() if present]


def coverage_in_words(covers: Sequence[str]) -> str:
    """What an interval holds, and what it leaves out."""
    said = f"{100 * COVERAGE:.0f} % intervals hold " + ", ".join(_WORDS[name] for name in covers)
    if "calibration" not in covers:
        said += "; the device is not calibrated, so that errors of its times are not in them"
    return said
