"""Intervals of a draft's main numbers: errors of kernels, of counted acceptance and of an engine's terms, carried through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from hwmodels import Device, catalog
from hwmodels.analysis.uncertainty.cycle_errors import COVERAGE, CycleTimes, LogNormal, cycle_numbers
from hwmodels.analysis.uncertainty.kernel_errors import loop_scatter, times_have_errors
from hwmodels.numerics.fast_compile import run_on_host
from jaxspec.results import predicted
from jaxspec.results.network_results import Ends, HeadlineIntervals

__all__ = [
    "CYCLES_ALONE",
    "NO_INTERVAL",
    "coverage_in_words",
    "covered",
    "covered_by",
    "cycle_ends",
    "headline_intervals",
    "held_intervals",
    "interval_ends",
    "interval_notes",
]

#: Said once of a device whose times have no errors.
NO_INTERVAL = "the device is not calibrated, so errors of its times are not known"

#: And once of a measured one whose file holds errors of cycles alone.
CYCLES_ALONE = "the device's file holds errors of whole cycles alone, so errors of its steps are not known"

_numbers = run_on_host(cycle_numbers)
_ends = run_on_host(LogNormal.ends)

#: Kind of error -> what holds it, in words.
_WORDS = {
    "calibration": "errors of the device's kernels on held-out shapes",
    "acceptance": "the sampling error of acceptance",
    "engine": "the scatter of the engine's cycles",
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
    return held_intervals(jax.device_get(_numbers(times, chances, np.diag(error), batch=np.float32(batch))), covers)


def held_intervals(
    numbers: Mapping[str, LogNormal], covers: Sequence[str], at: tuple[int, ...] = ()
) -> HeadlineIntervals | None:
    """Intervals of numbers whose errors are at hand; None where nothing is known to err.

    Args:
        numbers: of `cycle_numbers`, on the host.
        covers: see `HeadlineIntervals`.
        at: place among the numbers' "*b".
    """
    if not covers:
        return None
    ends: dict[str, Any] = cycle_ends(numbers, at)
    words = coverage_in_words(covers)
    return HeadlineIntervals(coverage=COVERAGE, covers=list(covers), statement=words, **ends)


def cycle_ends(numbers: Mapping[str, LogNormal], at: tuple[int, ...] = ()) -> dict[str, Ends]:
    """Ends of the intervals of `cycle_numbers`, as the fields of `jaxspec.results.network_results.CycleEnds`; on the host.

    Args:
        at: place among the numbers' "*b".
    """
    return {name: interval_ends(number, at) for name, number in numbers.items()}


def interval_ends(number: LogNormal, at: tuple[int, ...] = ()) -> Ends:
    """Ends of one number's interval; on the host."""
    low, high = _ends(LogNormal(np.asarray(number.value)[at], np.asarray(number.log_deviation)[at]))
    return Ends(low=predicted(float(low)), high=predicted(float(high)))


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
    said = f"{100 * COVERAGE:.0f} % intervals, including " + ", ".join(_WORDS[name] for name in covers)
    if "calibration" not in covers:
        said += "; errors of the device's steps are not known, so they are not included"
    return said


def covered_by(device: Device, *, acceptance: bool = False, scatter: float = 0.0) -> list[str]:
    """Which errors are known of times on a device, of those of `HeadlineIntervals.covers`.

    Args:
        acceptance: whether it was counted, with an error.
        scatter: of the engine's cycles.
    """
    known = {"calibration": times_have_errors(device), "acceptance": acceptance, "engine": scatter > 0}
    return [name for name, present in known.items() if present]


def interval_notes(device: Device, engine: str | None = None) -> list[str]:
    """A sentence for a reader where a device's times have no errors, and how to see those of its cycles.

    Args:
        engine: whose cycles are priced; None: none's.
    """
    if times_have_errors(device):
        return []
    if not loop_scatter(device):
        return [NO_INTERVAL]
    own = engine == catalog.OWN_ENGINE
    return [CYCLES_ALONE if own else f"{CYCLES_ALONE}; --engine {catalog.OWN_ENGINE} prices its cycles with intervals"]
