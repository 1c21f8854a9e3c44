"""Devices of published measurements: the catalog's, at the memory bandwidth that a run without speculation shows.

Two GPUs of one name differ by 1.4 in how fast they decode, so a name does not say the bandwidth. A run's own step without
speculation does: of each group of rows it is taken at the fewest sequences, and the bandwidth solved for. That step is an
input of the prediction then; steps at more sequences, cycles and speedups are predicted.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Callable

from scipy.optimize import brentq

from experiments.field.stored import NotPricedError
from hwmodels import Architecture, Device, catalog
from hwmodels.catalog import EntryError, UnknownNameError
from hwmodels.catalog.calibrations import (
    DEFAULT_ENGINE,
    LARGEST_HELD_OUT_ERROR,
    calibrated_engines,
    calibrated_formats,
    calibration_record,
    held_out_error,
)
from hwmodels.catalog.entries import shown
from hwmodels.compute.roofline import unit_of

__all__ = [
    "Gpu",
    "at_bandwidth",
    "device_of_group",
    "least_bandwidth",
    "likely_cards",
    "named_device",
    "solved_bandwidth",
]

#: Before a name: "2xH100". How many there are is `device_count`.
_MANY = r"\b(?:[0-9]+ ?x ?)?"

#: Devices of the catalog that stand for one of the same name where an engine's kernels were measured.
_MEASURED_TWINS = {"rtx-4090": "rtx-4090-calibrated"}

#: Cards of a name whose memory or clocks are others than those of the catalog's; an M3 Ultra of unknown cores has 60 or 80.
_SIBLING = re.compile(r"a100.*(?:pcie|\b40 ?gb)|\b[ah]800\b|m3 ultra(?!.*\b80[ -]core)|pro 6000.*max-q")

#: Names that say which memory a card has: modules, as their drivers call them too, and GPUs that were built with one alone.
_ONE_MEMORY = re.compile(r"\bsxm|\bh100.*\bhbm3\b|\b[hb]200\b|\bg?b300\b|\bl40s\b|\brtx pro 6000\b")

#: The least bandwidth of another memory on a catalog's chip: an H100 behind PCIe has 0.61 of a module's.
_LEAST_MEMORY = 0.6

#: GPUs that share matrices without a word of PCIe in their name are modules, which have NVLink.
_MODULES = re.compile(rf"{_MANY}[ahb]100\b")

#: Links of cards whose names say that they have no NVLink -> the catalog's.
_LINKS = ((r"a100.*pcie|pcie.*a100", "pcie4"),)

#: Bandwidth over the catalog's that can be another memory on the same chip, or an engine that leaves it idle.
_SCALES = (0.15, 1.6)


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A device of a row.

    Attributes:
        name: in the catalog.
        kernels: engine whose measured kernels it has; None: no kernels were measured on it, but rates.
        weight_format: of kernels that also quantize activations; None: activations keep 16 bits.
        notes: what was asked for and is not measured, sentences for a reader.
    """

    name: str
    device: Device
    kernels: str | None
    weight_format: str | None
    notes: tuple[str, ...] = ()


@functools.cache
def named_device(name: str, engine: str | None = None, formats: tuple[str, ...] = (), *, rows: bool = False) -> Gpu:
    """A device by the name that logs use, or of a user's own file, with the kernels of an engine and a format where they were
    measured.

    Args:
        engine: in the catalog; None: of no known name.
        rows: whether the engine has kernels of its own everywhere, which take instructions for each row.
        formats: kernels of the weights, see `experiments.field.stored.Stored`; the first that was measured counts.
    Raises:
        NotPricedError: the catalog has no such device.
    """
    is_file = name.endswith(".toml") and os.path.isfile(name)
    found = name if is_file else catalog.device_named(name, whole=False)
    if found is None:
        raise NotPricedError(f"the catalog has no device {shown(name)}")
    found = found if rows else _MEASURED_TWINS.get(found, found)
    notes = (
        [f"{shown(name)} is priced as {found}, at the bandwidth of its own step where one was published"]
        if _SIBLING.search(name.lower()) and not is_file
        else []
    )
    try:
        entry = catalog.device_entry(found)
    except EntryError as error:  # a file of the user's own
        raise NotPricedError(str(error)) from None
    gpu = entry.calibration
    if rows and engine is not None:
        entry = catalog.device_entry(found, engine=engine)
    lent = gpu is None and not rows and not is_file
    if lent:
        gpu = catalog.engine_kernels(entry, found, engine)
    if rows or gpu is None:
        own = None
        if not rows:
            said = f"no kernels were measured on {found}, neither of this engine nor of another: the rates of its file"
        elif entry.device.extra_rows is not None:
            said = f"{engine} on {found}: rates of the data sheet, and instructions for each further row of a product"
        else:
            own = engine
            said = f"{engine} on {found}: {unit_of(entry.device).title}, at the rates of its file"
        return Gpu(found, entry.device, own, None, (*notes, said))
    kernels = engine if engine in calibrated_engines(gpu) else None
    if kernels is None:
        measured = ", ".join(calibrated_engines(gpu))
        notes.append(
            f"kernels of {engine or 'this engine'} were not measured on {found}: those of {DEFAULT_ENGINE} "
            f"(measured: {measured})"
        )
    held = calibrated_formats(gpu, kernels)
    weights = next((kind for kind in formats if kind in held), None)
    own = kernels or DEFAULT_ENGINE
    if weights != next(iter(formats), None):
        instead = "kernels with 16-bit activations, at its bits" if weights is None else f"those of {weights}"
        notes.append(f"kernels of {formats[0]} were not measured on {found} with {own}: {instead}")
    if weights is not None:
        error = held_out_error(calibration_record(gpu, kernels)["formats"][weights])
        if error > LARGEST_HELD_OUT_ERROR:
            notes.append(f"kernels of {weights} on {found} with {own} err by {100.0 * error:.0f} % on held-out shapes")
    device = catalog.device(found, engine=kernels, weight_format=weights)
    if lent:  # what nobody measured shows no engine's terms
        return Gpu(found, device, None, weights, (*notes, f"no kernels were measured on {found}: those of {gpu} count"))
    return Gpu(found, device, own, weights, tuple(notes))


def device_of_group(
    name: str, one: Gpu, *, tensor: int, devices: int, target: Architecture, draft: Architecture | None = None
) -> Gpu:
    """A device as one of several that hold the target together.

    A draft network is shared by as many devices as the target, as vLLM and SGLang have it unless told otherwise.

    Args:
        name: as logs write it; says where a card has no NVLink.
        one: a device of the group, alone.
        tensor: devices that share every matrix; the others of all `devices` are replicas.
        target: the network.
        draft: a network of its own, None for other drafts; one that cannot be shared so is held by each device as a whole.
    Raises:
        NotPricedError: the catalog has no link of such a device; the network cannot be divided so.
    """
    link = next((own for pattern, own in _LINKS if re.search(pattern, name.lower())), None)
    if devices % tensor:
        raise NotPricedError(f"its notes say tp={tensor}, which does not divide device_count, {devices}")
    if link is None and catalog.device_entry(one.name).link is None:
        raise NotPricedError(f"the catalog knows no link between devices of {one.name}")
    division, notes = catalog.Parallelism(tensor=tensor, data=devices // tensor, link=link), one.notes
    try:
        catalog.check_parallelism(division, target, "the target")
    except EntryError as error:
        raise NotPricedError(str(error)) from None
    try:
        if draft is not None:
            catalog.check_draft_parallelism(division, draft, "the draft")
    except EntryError:
        division = dataclasses.replace(division, draft_tensor=1)
        notes = (*notes, f"the draft network cannot be shared by {tensor} devices: each holds it as a whole")
    try:
        entry = dataclasses.replace(catalog.device_entry(one.name), device=one.device)
        return dataclasses.replace(one, device=catalog.grouped(entry, division, one.name).device, notes=notes)
    except (EntryError, UnknownNameError) as error:
        raise NotPricedError(str(error)) from None


def least_bandwidth(name: str, devices: int) -> float:
    """The least bandwidth over the catalog's that a card of this name can have: no lower one explains a slower step.

    Args:
        name: as logs write it. devices: that ran together.
    """
    text = name.lower()
    known = _ONE_MEMORY.search(text) or (devices > 1 and _MODULES.search(text))
    return 1.0 if known and not _SIBLING.search(text) else _LEAST_MEMORY


def likely_cards(name: str, devices: int) -> tuple[str, ...]:
    """Names that several cards of one name may mean: modules that NVLink joins, or cards behind PCIe.

    Args:
        name: as logs write it. devices: that ran together.
    """
    text = name.lower()
    open_to_both = devices > 1 and re.search(rf"{_MANY}h100\b", text) and not re.search(r"sxm|nvlink|pcie|nvl", text)
    return (name, f"{name} PCIe") if open_to_both else (name,)


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
