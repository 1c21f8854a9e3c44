"""What the times of one device assume, in sentences made from the device itself: its rates, its kernels, its decoders."""

from __future__ import annotations

import dataclasses
import os
from statistics import fmean
from typing import Any

from hwmodels import Architecture, catalog
from hwmodels.analysis.design_point import leaf_names
from hwmodels.catalog.calibrations import calibration_record, used_attention, used_formats
from hwmodels.catalog.device_entries import DeviceEntry
from hwmodels.catalog.groups import group_link
from hwmodels.chip.bill import static_power
from hwmodels.compute.roofline import unit_of
from hwmodels.device import MemoryTier
from hwmodels.numerics.units import NANO
from jaxspec.report.formatting import device_name, quantity
from jaxspec.results.network_results import MeasuredResult, PricedNumber, PricedResult
from jaxspec.results.records import finite
from jaxspec.settings.common import ParallelSettings

__all__ = [
    "architecture_data",
    "assumptions",
    "device_data",
    "device_facts",
    "device_rows",
    "number_status",
    "parallelism_of",
    "priced_facts",
]


def parallelism_of(config: ParallelSettings) -> catalog.Parallelism:
    """How settings divide a network among devices."""
    return catalog.Parallelism(
        tensor=config.tensor_parallel,
        expert=config.expert_parallel,
        data=config.data_parallel,
        pipeline=config.pipeline,
        draft_tensor=config.draft_tensor_parallel,
        link=config.link,
    )


def parallelism_text(entry: DeviceEntry, parallelism: catalog.Parallelism, name: str) -> list[str]:
    """What times of several devices assume, in sentences; none for one device.

    Args:
        entry: of one of the devices, which is called `name`.
    """
    if parallelism.alone:
        return []
    link = group_link(entry, parallelism, name)
    ways = {
        "tensor": parallelism.tensor,
        "expert": parallelism.expert,
        "data": parallelism.data,
        "pipeline": parallelism.pipeline,
    }
    counted = ", ".join(f"{way} {count}" for way, count in ways.items() if count > 1)
    errors = ", ".join(f"{collective} {100 * error:.2g} %" for collective, error in link.errors.items())
    return [
        f"{parallelism.devices} devices over {link.title} hold the network together ({counted}); times are of all of them, "
        "work, traffic and memory of one, energy of all. Collectives overlap with nothing; mean error of those measured, on "
        f"sizes held out: {errors or 'none was measured'}.",
        "A draft network of its own is shared by "
        f"{parallelism.tensor if parallelism.draft_tensor is None else parallelism.draft_tensor} devices.",
    ]


#: Where decoders sit, in words.
_PLACES = {"l2": "between L2 cache and interconnect", "dma": "in the DMA", "array_edge": "at the array's edge"}


def device_facts(name: str, kernels: Any = None, parallelism: ParallelSettings | None = None) -> dict[str, Any]:
    """What an entry of result.json says of its device, so that a report needs nothing else.

    Args:
        name: of the catalog, or the path of a TOML file.
        kernels: settings with `engine` and `weight_format`, perhaps with the place of decoders; the device's own unless given.
        parallelism: of a network among several devices; one alone unless given.
    Returns:
        device_title; device_data: field -> number; assumptions: sentences.
    """
    chosen = {}
    if kernels is not None:
        chosen = {"engine": catalog.kernels_engine(name, kernels.engine), "weight_format": kernels.weight_format}
    entry, together = catalog.device_entry(name, **chosen), []
    place, decoder = getattr(kernels, "decoder_place", None), entry.device.decoder
    if place is not None and decoder is not None:
        there = dataclasses.replace(decoder, place=place)
        entry = dataclasses.replace(entry, device=dataclasses.replace(entry.device, decoder=there))
    if parallelism is not None:
        used = parallelism_of(parallelism)
        together = parallelism_text(entry, used, name)
        entry = catalog.grouped(entry, used, name)
    data = {
        field: PricedNumber(value=float(value), source=source, status=number_status(source))
        for field, source in entry.sources.items()
        if (value := _number(entry, field)) is not None
    }
    return {"device_title": entry.title, "device_data": data, "assumptions": [*device_assumptions(entry), *together]}


def architecture_data(name: str, architecture: Architecture) -> dict[str, PricedNumber]:
    """The numbers of a priced architecture, by field.

    Args:
        name: of the catalog, "own", or the path of a Hugging Face config.json.
    """
    known = name.strip().lower() in catalog.architecture_names() and not os.path.exists(name)  # a file goes first
    sources = catalog.architecture_sources(name) if known else {}
    other = "the network that ran" if name == "own" else f"{name}, or a default"
    return {
        field: PricedNumber(
            value=float(getattr(architecture, field)),
            source=sources.get(field, "default" if sources else other),
            status=number_status(sources.get(field, "")),
        )
        for field in leaf_names(architecture)
    }


def priced_facts(
    device: str,
    name: str,
    architecture: Architecture,
    kernels: Any = None,
    parallelism: ParallelSettings | None = None,
) -> dict[str, Any]:
    """Fields that all results have, of the device and of the architecture that were priced.

    Args:
        device, kernels, parallelism: see `device_facts`.
        name: of the architecture, see `architecture_data`.
    """
    own = {"architecture": name, "architecture_data": architecture_data(name, architecture)}
    return own | {"device": device} | device_facts(device, kernels, parallelism)


def number_status(source: str) -> str:
    """The status of a device's number: "calibrated" if it was fitted to measured or printed times, else "input"."""
    return "calibrated" if source.strip().lower().startswith("calibrated") else "input"


def device_assumptions(entry: DeviceEntry) -> list[str]:
    """A sentence or two each about arithmetic, memory, launches, decoding, energy, and numbers that were fitted."""
    device = entry.device
    said = [*_arithmetic(entry), _memory(entry)]
    if float(device.kv_traffic_factor) != 1.0:
        said.append(
            f"Attention moves {float(device.kv_traffic_factor):g} bytes per byte of the cache "
            f"({_word(entry, 'kv_traffic_factor')})."
        )
    if (extra := device.extra_rows) is not None:
        said.append(
            f"Each row of a matrix product beyond the first, up to {float(extra.until):g}, takes {float(extra.instructions):g} "
            f"instructions per weight ({_word(entry, 'extra_rows.instructions')})."
        )
    if (blocks := device.superblocks) is not None:
        said.append(
            f"Compressed tensors are padded to blocks of {float(blocks.block_bytes):g} bytes and superblocks of "
            f"{float(blocks.blocks_per_superblock):g} of these."
        )
    said += [_launches(entry), _decoding(entry), *_on_chip(entry), *_encoding(entry), _energy(entry)]
    fitted = [field for field, source in entry.sources.items() if number_status(source) == "calibrated"]
    if fitted and entry.calibration is None and unit_of(device).measured is None:
        said.append(
            f"Fitted to printed times, not to data sheets: {', '.join(fitted)} (sources in the table of device data)."
        )
    return said


def _arithmetic(entry: DeviceEntry) -> list[str]:
    device, unit = entry.device, entry.device.matrix_unit
    efficiency = float(device.compute_efficiency)
    rate = (
        f"{100 * efficiency:.4g} % of the dense 16-bit rate of {quantity('_flops_per_s', float(device.peak_flops_per_s))} "
        f"(efficiency: {_word(entry, 'compute_efficiency')})"
    )
    rest = rate
    if device.vector_flops_per_s is not None:
        vector_flops_per_s = quantity("_flops_per_s", float(device.vector_flops_per_s))
        rest = f"{vector_flops_per_s} ({_word(entry, 'vector_flops_per_s')})"
    if unit is None:
        return [
            f"Time is a roofline per operator: all arithmetic runs at {rate}, whatever width weights are stored in."
        ]
    if unit.measured is not None:
        return [*_calibration(entry), f"Everything but matrix products and attention runs at {rest}."]
    return [
        f"Matrix products take the time that a model of {unit.title} counts from its shape and clock; that model was not held "
        f"against measured times here. Everything else runs at {rest}."
    ]


def _calibration(entry: DeviceEntry) -> list[str]:
    """What the kernels are fitted to, with which error."""
    unit = entry.device.matrix_unit
    if entry.calibration is None:
        spreads = [one for one in unit.measured.spreads if one.part != "prefill"]
        known = [f"{one.part} between {one.low:.2f} and {one.high:.2f}" for one in spreads]
        errors = (
            f"; {100 * spreads[0].coverage:.0f} % of measured over fitted times: {', '.join(known)}" if spreads else ""
        )
        return [f"Matrix products and attention take the times that the device's file was fitted to{errors}."]
    record = calibration_record(entry.calibration, unit.engine or None)
    used = [
        entry for entry in used_formats(record, wanted=unit.weight_format) if entry["weight_bits"] in unit.weight_widths
    ]
    formats, attention = used[::-1], used_attention(record)
    tables = dict.fromkeys(entry["table"] for entry in (*formats, *attention))
    errors = [
        f"{entry['weight_bits']:g}-bit weights {100 * fmean(entry['held_out_halves']):.2g} %"
        for entry in formats
        if entry.get("held_out_halves")
    ]
    parts = [(f"decoding attention over {entry['kv_bits']:g}-bit KV", entry) for entry in attention]
    for name, fit in (*parts, ("prefill attention", record["prefill"])):
        errors.append(f"{name} {100 * fit['errors']['held out']['mean']:.2g} %")
    said = (
        f"Matrix products and attention take the time of the engine's kernels that are calibrated to measured ones "
        f"({', '.join(tables)}); "
        f"mean error on measurements that the fit did not see: {', '.join(errors) or 'not known'}. Arithmetic and traffic "
        "are joined by the smooth maximum of that fit."
    )
    sheet, device = record["data_sheet"], entry.device
    own = {
        "peak_flops_per_s": float(device.peak_flops_per_s),
        "bandwidth_bytes_per_s": float(device.memory.bandwidth_bytes_per_s),
    }
    if any(abs(value / float(sheet[name]) - 1.0) > 0.02 for name, value in own.items()):
        said += f" They were measured on another GPU, {entry.calibration}, and scaled by this one's data sheet."
    widths = " and ".join(f"{entry['weight_bits']:g}" for entry in formats)
    return [said, f"There are measured kernels for {widths} bits per weight; times at other widths follow from these."]


def _memory(entry: DeviceEntry) -> str:
    device = entry.device
    parts = [_tier(entry, device.memory, "memory")]
    parts += [_tier(entry, tier, f"spill.{i}") for i, tier in enumerate(device.spill)]
    said = f"Weights and cached keys and values stream at {', then '.join(parts)}"
    if len(parts) > 1:
        said += "; all at the same time" if device.schedule == "overlapped" else "; one after the other"
    if unit_of(device).measured is not None:
        said += "; products and attention reach the shares that their kernels were fitted with"
    return said + "."


def _tier(entry: DeviceEntry, tier: MemoryTier, name: str) -> str:
    return (
        f"{100 * float(tier.efficiency):.4g} % of {quantity('_bytes_per_s', float(tier.bandwidth_bytes_per_s))} "
        f"(efficiency: {_word(entry, f'{name}.efficiency')})"
    )


def _launches(entry: DeviceEntry) -> str:
    latency_s = float(entry.device.operator_latency_s)
    if unit_of(entry.device).measured is not None:
        return (
            "Launches of products and attention take the fitted times; others take "
            f"{quantity('_s', latency_s)} each ({_word(entry, 'operator_latency_s')})."
        )
    if latency_s == 0:
        return f"Launching an operator takes no time ({_word(entry, 'operator_latency_s')})."
    return f"Each launch of an operator takes {quantity('_s', latency_s)} ({_word(entry, 'operator_latency_s')})."


def _decoding(entry: DeviceEntry) -> str:
    decoder = entry.device.decoder
    if decoder is not None and decoder.kind != "none":
        return (
            f"Values that are stored in fewer than 16 bits pass {float(decoder.count):g} {decoder.kind.replace('_', ' ')} "
            f"decoders {_PLACES[decoder.place]} ({float(decoder.symbols_per_cycle):g} symbols per cycle each at "
            f"{quantity('_hz', float(decoder.frequency_hz))}); a step waits for them where they are the slowest."
        )
    return unit_of(entry.device).unpacking


def _encoding(entry: DeviceEntry) -> list[str]:
    encoder = entry.device.encoder
    if encoder is None:
        return []
    return [
        f"New keys and values that are stored in fewer than 16 bits pass {float(encoder.count):g} encoders while the step runs "
        f"({float(encoder.values_per_cycle):g} values per cycle each at {quantity('_hz', float(encoder.frequency_hz))}); a "
        "step waits for them only where they take longer than all else."
    ]


#: Where decoders sit -> what passes buffer and links on the chip.
_PASSES = {
    "dma": "values pass both in 16 bits, as the decoders in the DMA leave them",
    "l2": "values pass the buffer as they are stored, and the links in 16 bits",
    "array_edge": "values pass both as they are stored",
}


def _on_chip(entry: DeviceEntry) -> list[str]:
    """What the paths of the chip take, or that they are not known where decoders would make them matter."""
    path, decoder = entry.device.on_chip_path, entry.device.decoder
    # Without decoders the compute unit unpacks values, as decoders at its edge do.
    place = "array_edge" if decoder is None or decoder.kind == "none" else decoder.place
    if path is None:
        if place == "array_edge":
            return []
        return [
            "The device's file gives no bandwidth between its memories and what multiplies ([on_chip_path]): decoded values "
            "pass there however many they are, and where decoders sit changes no step's time by it."
        ]
    said = f"A buffer on the chip delivers {quantity('_bytes_per_s', float(path.buffer_bytes_per_s))}"
    if path.link_bytes_per_s is not None:
        said += f", and the links behind it {quantity('_bytes_per_s', float(path.link_bytes_per_s))}"
    return [f"{said}; each byte of a step passes once, and {_PASSES[place]}."]


def _energy(entry: DeviceEntry) -> str:
    if not entry.device.knows_energy:
        return "Energy and area of this device are not known, and none are reported."
    static_w = float(static_power(entry.device))
    technology = entry.device.technology
    if technology is not None:
        return (
            f"Area, power and energy follow from the sizes of arrays, memory and links at {float(technology.node_m) / NANO:g} "
            "nm by published areas and energies (Stillmaker and Baas 2017, Horowitz 2014, Jouppi et al. 2021); "
            f"{static_w:.4g} W are drawn all the time."
        )
    return (
        f"Energy is that of arithmetic, of each memory's bits and of decoders, and {static_w:.4g} W all the time; where "
        "each number comes from, the table of device data says."
    )


def _word(entry: DeviceEntry, field: str) -> str:
    """Where a number comes from, in a word."""
    source = entry.sources.get(field)
    if source is None:
        return "default"
    first = source.strip().lower().partition(":")[0]
    return first if first in ("assumed", "derived", "calibrated") else "given"


def _number(entry: DeviceEntry, dotted: str) -> Any:
    """A number of the device's, or of what this package spends on it."""
    tree: Any = entry if dotted.startswith("engine_terms.") else entry.device
    for name in dotted.split("."):
        tree = tree[int(name)] if name.isdigit() else getattr(tree, name)
    return tree


@dataclasses.dataclass(frozen=True)
class DeviceNumber:
    """One number of a device's data, where it comes from, and its status."""

    field: str
    value: float
    source: str
    status: str = "input"


def device_data(result: MeasuredResult | PricedResult) -> list[DeviceNumber]:
    """The device's numbers: the result's own, else those of the catalog; empty for a device that neither knows."""
    given = getattr(result, "device_data", None)
    if given is None:
        given = _catalog(result, "device_data", {})
    return [
        DeviceNumber(
            field,
            value,
            source=str(number.source or "no source given"),
            status=str(number.status or number_status(str(number.source or ""))),
        )
        for field, number in given.items()
        if (value := finite(number.value)) is not None
    ]


def device_rows(result: MeasuredResult | PricedResult) -> list[tuple[str, str, str, str]]:
    """The device's numbers: field, value with its unit, status, source."""
    return [(d.field, quantity(d.field, d.value), d.status, d.source) for d in device_data(result)]


def assumptions(result: MeasuredResult | PricedResult) -> list[str]:
    """What the device's times assume, in sentences: the result's own, else those of the catalog's device."""
    given = getattr(result, "assumptions", None)
    return [str(sentence) for sentence in (_catalog(result, "assumptions", []) if given is None else given)]


def _catalog(result: MeasuredResult | PricedResult, key: str, default: Any) -> Any:
    """What the catalog says of the device."""
    name = device_name(result)
    return device_facts(name)[key] if name in catalog.device_names() else default
