"""The machine that a program runs on: what it is called, and how busy it is."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import jax

__all__ = [
    "device_memory_bytes",
    "load_per_core",
    "machine_name",
    "measured_title",
    "peak_device_bytes",
    "processor_name",
    "whole_machine_name",
]

#: Where the system does not say: a common size.
_UNKNOWN_BYTES = 8_000_000_000

#: Where Linux tells how much memory this process may take.
_LIMIT = Path("/sys/fs/cgroup/memory.max")


def machine_name() -> str:
    """Backend, device, cores and processor, as in "cpu, 2 cores, x86_64"."""
    device = jax.devices()[0]
    kind = [] if device.device_kind == device.platform else [device.device_kind]
    return ", ".join([device.platform, *kind, f"{os.cpu_count()} cores", platform.machine()])


def device_memory_bytes() -> int:
    """What programs may take of the first device's memory; of a CPU's, what this process may take, divided among the devices
    that it makes of it."""
    devices = jax.local_devices()
    device = devices[0]
    memory_limit = (device.memory_stats() or {}).get("bytes_limit")
    if memory_limit is not None or device.platform != "cpu":
        return int(memory_limit or _UNKNOWN_BYTES)
    try:
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError, AttributeError):  # not on every system
        memory_bytes = _UNKNOWN_BYTES
    limit = _LIMIT.read_text(encoding="utf-8").strip() if _LIMIT.is_file() else ""
    return (min(memory_bytes, int(limit)) if limit.isdigit() else memory_bytes) // len(devices)


def peak_device_bytes() -> int | None:
    """The most that this process has had in use of the first device's memory; None where JAX does not say, as on CPUs."""
    return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


def processor_name() -> str:
    """The processor's own name where the system tells it, else its family."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2] for line in lines if line.startswith("model name"))
    return " ".join(next(named, "").split()) or platform.machine()


def whole_machine_name() -> str:
    """Processor and `machine_name`, by which times are known to be of this machine."""
    return f"{processor_name()} ({machine_name()})"


def measured_title() -> str:
    """Title of a device file that was measured on this machine, by which it is known again."""
    return f"{whole_machine_name()}, measured"


def load_per_core() -> float | None:
    """Tasks that wanted to run in the last minute, over the cores: above 1, they took turns; None where nothing says so."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except (AttributeError, OSError):  # not on every system
        return None
