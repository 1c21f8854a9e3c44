"""Times of calls: the median of repeats, of several calls in turns, so that a busy moment of the machine meets all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

__all__ = ["median_s", "medians_s"]


def medians_s(
    calls: Sequence[Callable[[], Any]], repeats: int = 5, *, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Median seconds of each call, results awaited, after one that compiles and warms up.

    Args:
        calls: take turns.
        clock: `time.process_time` counts what this process computes alone.
    """
    for call in calls:
        jax.block_until_ready(call())
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats):
        for call, seconds in zip(calls, found, strict=True):
            began = clock()
            jax.block_until_ready(call())
            seconds.append(clock() - began)
    return [float(np.median(seconds)) for seconds in found]


def median_s(call: Callable[[], Any], repeats: int = 5, *, clock: Callable[[], float] = time.perf_counter) -> float:
    """The same of one call."""
    return medians_s([call], repeats, clock=clock)[0]
