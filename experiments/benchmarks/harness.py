"""What every benchmark shares: warm-up, blocking, medians, and the machine they ran on."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import jax
import numpy as np


def median_s(function: Callable[[], Any], repeats: int = 5) -> float:
    """Median wall time of a call that has run once before, results awaited."""
    jax.block_until_ready(function())
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - started)
    return float(np.median(times))


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
