"""The machine that is measured: its name, its memory, and what its times were made with."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import jax

__all__ = ["machine_name", "memory_bytes"]

#: Where the system does not say: a common size.
_UNKNOWN_BYTES = 8e9


def machine_name() -> str:
    """What a person calls the device that JAX runs on, in one line."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        return " ".join(device.device_kind.split())
    return f"{_processor()}, {_cores()} cores"


def memory_bytes() -> float:
    """Memory of that device."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        found = device.memory_stats() or {}
        return float(found.get("bytes_limit", _UNKNOWN_BYTES))
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, AttributeError):
        return _UNKNOWN_BYTES


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # only Linux says which cores a process may use
        return os.cpu_count() or 1


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return " ".join((next(named, "") or platform.processor() or platform.machine() or "processor").split())
