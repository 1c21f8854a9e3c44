"""The machine that a program runs on: what it is called, and how busy it is."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import jax

__all__ = ["load_per_core", "machine_name", "measured_title", "memory_bytes", "processor_name"]

#: Where the system does not say: a common size.
_UNKNOWN_BYTES = 8e9


def machine_name() -> str:
    """Backend, device, cores and processor, as in "cpu, 2 cores, x86_64"."""
    device = jax.devices()[0]
    kind = [] if device.device_kind == device.platform else [device.device_kind]
    return ", ".join([device.platform, *kind, f"{os.cpu_count()} cores", platform.machine()])


def memory_bytes() -> float:
    """Memory of the device that JAX runs on."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        found = device.memory_stats() or {}
        return float(found.get("bytes_limit", _UNKNOWN_BYTES))
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, AttributeError):  # not on every system
        return _UNKNOWN_BYTES


def processor_name() -> str:
    """The processor's own name where the system tells it, else its family."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2] for line in lines if line.startswith("model name"))
    return " ".join(next(named, "").split()) or platform.machine()


def measured_title() -> str:
    """Title of a device file that was measured on this machine, by which it is known again."""
    return f"{processor_name()} ({machine_name()}), measured"


def load_per_core() -> float | None:
    """Tasks that wanted to run in the last minute, over the cores: above 1, they took turns; None where nothing says so."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except (AttributeError, OSError):  # not on every system
        return None
