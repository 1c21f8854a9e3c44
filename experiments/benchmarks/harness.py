"""What every benchmark shares: its line of the result, and the machine it ran on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from typing import Any

import jax


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
