"""The machine that a program runs on: what it is called, and how busy it is."""

from __future__ import annotations

import os
import platform

import jax

__all__ = ["load_per_core", "machine_name"]


def machine_name() -> str:
    """Backend, device, cores and processor, as in "cpu, 2 cores, x86_64"."""
    device = jax.devices()[0]
    kind = [] if device.device_kind == device.platform else [device.device_kind]
    return ", ".join([device.platform, *kind, f"{os.cpu_count()} cores", platform.machine()])


def load_per_core() -> float | None:
    """Tasks that wanted to run in the last minute, over the cores: above 1, they took turns; None where nothing says so."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except (AttributeError, OSError):  # not on every system
        return None
