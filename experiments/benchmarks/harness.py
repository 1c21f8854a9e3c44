"""What every benchmark shares: its line of the result, and the machine it ran on.

Times of calls: the median of repeats, of several calls in turns, so that a busy moment of the machine meets all alike.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

__all__ = ["median_s", "medians_s"]


def machine() -> str:
    """Cores and backend."""
    return f"{os.cpu_count()} cores, {platform.machine()}, {jax.default_backend()}"


def row(name: str, workload: str, ours: float, peer: float, peer_name: str, unit: str, ratio: float) -> dict[str, Any]:
    """One line of the result; `ratio` is how much better ours is, whatever the unit's direction."""
    return {
        "name": name,
        "workload": workload,
        "ours": ours,
        "peer": peer,
        "peer_name": peer_name,
        "unit": unit,
        "ratio": ratio,
        "machine": machine(),
        "versions": {package: version(package) for package in ("jax", "jaxlib", "numpy")}
        | {"python": platform.python_version()},
    }


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
    samples: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats):
        for call, seconds in zip(calls, samples, strict=True):
            began = clock()
            jax.block_until_ready(call())
            seconds.append(clock() - began)
    return [float(np.median(seconds)) for seconds in samples]


def median_s(call: Callable[[], Any], repeats: int = 5, *, clock: Callable[[], float] = time.perf_counter) -> float:
    """The same of one call."""
    return medians_s([call], repeats, clock=clock)[0]
