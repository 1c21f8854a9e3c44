"""Devices of published measurements: the catalog's, at the memory bandwidth that a run without speculation shows.

Two GPUs of one name differ by 1.4 in how fast they decode, so a name does not say the bandwidth. A run's own step without
speculation does: of each group of rows it is taken at the fewest sequences, and the bandwidth solved for. That step is an
input of the prediction then; steps at more sequences, cycles and speedups are predicted.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable

from scipy.optimize import brentq

from experiments.field.networks import NotPricedError
from hwmodels import Architecture, Device, catalog
from hwmodels.catalog import EntryError, UnknownNameError

__all__ = ["at_bandwidth", "device_of_group", "named_device", "solved_bandwidth"]

#: A name as logs write it -> the catalog's.
_DEVICES = (
    (r"\bb200\b", "b200-sxm"),
    (r"\bh200\b", "h200-sxm"),
    (r"\bh100\b|\bgh200\b", "h100-sxm"),
    (r"\ba100\b", "a100-sxm-80gb"),
    (r"\bl40s?\b", "l40s"),
    (r"\b4090\b", "rtx-4090-calibrated"),
    (r"\brtx pro 6000\b", "rtx-pro-6000"),
    (r"\borin\b", "jetson-agx-orin"),
)

#: Links of cards whose names say that they have no NVLink -> the catalog's.
_LINKS = ((r"a100.*pcie|pcie.*a100", "pcie4"), (r"pcie", "pcie5"))

#: Engines as logs name them and calibrations do.
_ENGINES = ("vllm", "sglang", "trtllm")

#: Bandwidth over the catalog's that can be another memory on the same chip, or an engine that leaves it idle.
_SCALES = (0.2, 1.3)


@functools.cache
def named_device(name: str, engine: str = "") -> tuple[str, Device]:
    """A device by the name that logs use, with the kernels of the engine where they were measured: the catalog's name, numbers.

    Raises:
        NotPricedError: the catalog has none.
    """
    for pattern, found in _DEVICES:
        if re.search(pattern, name.lower()):
            own = next((one for one in _ENGINES if one in engine.lower()), None)
            try:
                return found, catalog.device(found, engine=own)
            except EntryError:
                return found, catalog.device(found)
    raise NotPricedError(f"the catalog has no device {name!r}")


def device_of_group(name: str, engine: str, *, tensor: int, devices: int, target: Architecture) -> tuple[str, Device]:
    """A device as one of several that hold the target together: the catalog's name, numbers.

    A draft network is shared by as many devices as the target, as vLLM and SGLang have it unless told otherwise.

    Args:
        name, engine: as of `named_device`.
        tensor: devices that share every matrix; the others of all `devices` are replicas.
        target: the network.
    Raises:
        NotPricedError: the catalog has no such device or no link of it; the network cannot be divided so.
    """
    found, device = named_device(name, engine)
    link = next((own for pattern, own in _LINKS if re.search(pattern, name.lower())), None)
    if devices % tensor:
        raise NotPricedError(f"{tensor} of {devices} devices share matrices")
    division = catalog.Division(tensor=tensor, data=devices // tensor, link=link)
    try:
        catalog.check_division(division, target, "the target")
        entry = catalog.device_entry(found)
        if entry.calibration is not None:
            entry = dataclasses.replace(entry, device=device)
        return found, catalog.grouped(entry, division, found).device
    except (EntryError, UnknownNameError) as error:
        raise NotPricedError(str(error)) from None


def at_bandwidth(device: Device, scale: float) -> Device:
    """The device with its memory bandwidth times `scale`, and room for whatever was run on it."""
    memory = device.memory
    return dataclasses.replace(
        device,
        memory=dataclasses.replace(
            memory, bandwidth_bytes_per_s=memory.bandwidth_bytes_per_s * scale, capacity_bytes=1e13
        ),
    )


def solved_bandwidth(step_s: Callable[[float], float], measured_s: float) -> float:
    """Bandwidth over the catalog's at which a step takes as long as it was measured to take.

    Args:
        step_s: seconds of the step from that number.
    Raises:
        NotPricedError: no bandwidth near the catalog's explains the step.
    """
    low, high = _SCALES
    if not step_s(high) <= measured_s <= step_s(low):
        raise NotPricedError(
            f"a step without speculation took {measured_s * 1e3:.3g} ms, which no bandwidth from {low:g} to {high:g} of the "
            f"catalog's explains ({step_s(high) * 1e3:.3g} to {step_s(low) * 1e3:.3g} ms)"
        )
    return float(brentq(lambda scale: step_s(scale) - measured_s, low, high, xtol=1e-4, full_output=False))  # pyright: ignore[reportArgumentType]
