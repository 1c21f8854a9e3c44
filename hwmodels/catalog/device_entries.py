"""A device's TOML entry: which tables and fields it may have, and the tree that they make.

Beside the numbers of `Device` a file may have the tables [chip], [matrix_unit] and [decoder] and any number of [[spill]]
memories. A matrix unit says its `kind`, and has the fields of that kind's class in `hwmodels.compute`:

[matrix_unit]
kind = "systolic_array"
rows = { value = 128, source = "…" }
[matrix_unit.weight_buffer]
…
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from hwmodels.analysis.sensitivity import leaf_names
from hwmodels.catalog.calibrated import calibrated_names, calibrated_unit, calibration_record
from hwmodels.catalog.entries import (
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    EntryError,
    Rule,
    near_matches,
    read_source,
    read_value,
    titled_document,
)
from hwmodels.compute.calibrated_gpu import CalibratedGpu
from hwmodels.compute.fpga_array import FpgaArray
from hwmodels.compute.matrix_vector_npu import SCHEDULES, MatrixVectorNpu
from hwmodels.compute.near_memory import NearMemoryUnit
from hwmodels.compute.roofline import unit_of
from hwmodels.compute.systolic.array import CONVENTIONS, DATAFLOWS, OnChipBuffer
from hwmodels.compute.systolic.unit import SystolicUnit
from hwmodels.compute.vector_array import VectorArray
from hwmodels.compute.vector_units import VectorUnits
from hwmodels.decoders.decoder import DECODER_KINDS, PLACES, Decoder
from hwmodels.device import Chip, Device, MemoryTier

__all__ = ["DeviceEntry", "number_rules", "parse_device"]


@dataclasses.dataclass(frozen=True)
class DeviceEntry:
    """A file's content; sources by dotted field name, as in "memory.efficiency" or "spill.0.capacity_bytes"."""

    title: str
    device: Device
    sources: dict[str, str]
    calibration: str | None = None  # of its matrix unit, a name of `calibrated_names`


@dataclasses.dataclass(frozen=True)
class _Form:
    """What a table may hold: numbers by rule (those not required have a default), texts, tables within."""

    build: Callable[..., Any]
    required: Mapping[str, Rule] = dataclasses.field(default_factory=dict)
    optional: Mapping[str, Rule] = dataclasses.field(default_factory=dict)
    texts: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)  # the first is the default
    tables: Mapping[str, _Form] = dataclasses.field(default_factory=dict)  # all required
    flags: tuple[str, ...] = ()


def _positive(*names: str) -> dict[str, Rule]:
    return dict.fromkeys(names, POSITIVE)


_MEMORY = _Form(
    MemoryTier,
    required=_positive("bandwidth_bytes_per_s", "capacity_bytes") | {"efficiency": SHARE},
    optional={
        "access_latency_s": NOT_NEGATIVE,
        "outstanding_accesses": POSITIVE,
        "given_half_bytes": NOT_NEGATIVE,
        "energy_j_per_bit": NOT_NEGATIVE,
    },
    flags=("coupled",),
)
_CHIP = _Form(
    Chip,
    required={"energy_j_per_flop": NOT_NEGATIVE, "static_power_w": NOT_NEGATIVE, "area_m2": POSITIVE},
    optional=_positive("element_area_m2"),
)
#: Decoders whose kind alone says how many symbols a unit puts out per cycle, with the source; others depend on their width.
_OWN_RATES = {"huffman_cam": (1.0, "derived: a unit matches one codeword per cycle, Huff-LLM, sec. 3.2")}
_DECODER = _Form(
    Decoder,
    required=_positive("frequency_hz"),
    # Not code_bits_per_cycle: a device's step does not know how many bits of a value are code; see `decoding_time`.
    optional=_positive("symbols_per_cycle", "symbol_bytes", "count")
    | dict.fromkeys(("area_m2", "power_w", "symbol_energy_j", "latency_cycles"), NOT_NEGATIVE),
    texts={"kind": tuple(kind for kind in DECODER_KINDS if kind != "none"), "place": tuple(PLACES)},
)
_BUFFER = _Form(
    OnChipBuffer, required=_positive("bandwidth_bytes_per_s", "access_bytes") | {"access_energy_j": NOT_NEGATIVE}
)
_VECTOR_UNITS = _Form(
    VectorUnits,
    required=_positive(
        "units", "packets_per_s", "register_weights", "lookup_packets", "gather_elements", "gather_packets"
    )
    | {"scale_packets": NOT_NEGATIVE},
    optional={"code_bits": POSITIVE, "metadata_bits": NOT_NEGATIVE},
)
_UNITS = {
    "systolic_array": _Form(
        SystolicUnit,
        required=_positive("rows", "columns", "frequency_hz") | {"mac_energy_j": NOT_NEGATIVE},
        texts={"dataflow": DATAFLOWS, "convention": ("huffllm", *(c for c in CONVENTIONS if c != "huffllm"))},
        tables={"input_buffer": _BUFFER, "weight_buffer": _BUFFER, "output_buffer": _BUFFER},
    ),
    "matrix_vector_npu": _Form(
        MatrixVectorNpu,
        required=_positive("peak_flops_per_s", "tile_rows", "tile_depth", "tile_columns", "dma_bytes_per_s"),
        optional={"converted_below_bits": POSITIVE},
        texts={"schedule": SCHEDULES},
        tables={"vector": _VECTOR_UNITS},
    ),
    "fpga_array": _Form(
        FpgaArray,
        required=_positive("rows", "columns", "frequency_hz"),
        optional=_positive("macs_per_pe", "packing", "packed_below_bits", "parallel_tokens") | {"efficiency": SHARE},
    ),
    "near_memory": _Form(
        NearMemoryUnit,
        required=_positive("pes", "reuse", "block_depth", "block_columns", "frequency_hz"),
        optional={"slice_bits": POSITIVE, "metadata_bits": NOT_NEGATIVE},
    ),
    "vector_array": _Form(
        VectorArray,
        required=_positive(
            "pe_rows",
            "pe_columns",
            "vector_macs",
            "vector_width",
            "frequency_hz",
            "weight_buffer_bytes",
            "input_buffer_bytes",
            "accumulator_buffer_bytes",
            "weight_lanes",
        )
        | {"global_buffer_bytes": NOT_NEGATIVE},
    ),
}
_DEVICE = _Form(
    Device,
    required=_positive("peak_flops_per_s", "scratchpad_bytes")
    | {"compute_efficiency": SHARE, "operator_latency_s": NOT_NEGATIVE},
    optional=_positive("kv_traffic_factor"),
    texts={"schedule": ("overlapped", "serial")},
    tables={"memory": _MEMORY},
)


def parse_device(text: str, *, where: str) -> DeviceEntry:
    """Read a device's TOML entry.

    Args:
        text: the file's content.
        where: the file's name, for messages.
    Raises:
        EntryError: not valid TOML; a key unknown or missing; a value that is no finite number or breaks its rule; a source
            missing or empty; a kind that is not modelled.
    """
    title, document = titled_document(text, where)
    reader = _Reader(where)
    extra: dict[str, Any] = {}
    if "chip" in document:
        extra["chip"] = reader.read(document.pop("chip"), _CHIP, "chip")
    if "decoder" in document:
        extra["decoder"] = reader.decoder(document.pop("decoder"))
    if "matrix_unit" in document:
        extra["matrix_unit"] = reader.unit(document.pop("matrix_unit"))
    if "spill" in document:
        spill = document.pop("spill")
        if not isinstance(spill, list):
            raise EntryError(f"{where}: spill is {spill!r}; write [[spill]] above the fields of each memory")
        extra["spill"] = tuple(reader.read(one, _MEMORY, f"spill.{i}") for i, one in enumerate(spill))
    device = reader.read(document, _DEVICE, "", also=("title", "chip", "decoder", "matrix_unit", "spill"))
    device = device.replace(**extra)
    _check_nothing_is_free(device, reader.sources, where)
    return DeviceEntry(title=title, device=device, sources=reader.sources, calibration=reader.calibration)


def _check_nothing_is_free(device: Device, given: Mapping[str, str], where: str) -> None:
    """Refuse a device with a [chip] some of whose parts would take no energy or area because the file is silent on them."""
    if device.chip is None:
        return
    needed = [(f"{tier}.energy_j_per_bit",) for tier in ("memory", *(f"spill.{i}" for i in range(len(device.spill))))]
    if device.decoder is not None:
        needed += [("decoder.power_w", "decoder.symbol_energy_j"), ("decoder.area_m2",)]
    for names in needed:
        if not any(name in given for name in names):
            raise EntryError(
                f"{where}: {' or '.join(names)} is missing; energy and area of a device with a [chip] are reported, and "
                f'this would be free: add {names[0]} = {{ value = …, source = "…" }}, or leave out [chip]'
            )
    if device.chip.element_area_m2 is not None and unit_of(device).elements is None:
        raise EntryError(
            f"{where}: chip.element_area_m2 came, but the device has no matrix unit with elements of equal area; "
            "remove it, or add a [matrix_unit] such as systolic_array"
        )


def number_rules(device: Device) -> dict[str, Rule]:
    """What each number of a device must be, by dotted name; fitted numbers of a calibrated GPU are >= 0."""
    forms = {"": _DEVICE, "memory": _MEMORY, "chip": _CHIP, "decoder": _DECODER}
    forms |= {f"spill.{i}": _MEMORY for i in range(len(device.spill))}
    units = {form.build: form for form in _UNITS.values()}
    unit = units.get(type(device.matrix_unit))
    if unit is not None:
        forms["matrix_unit"] = unit
    rules: dict[str, Rule] = {}
    for prefix, form in forms.items():
        rules |= _named_rules(form, f"{prefix}." if prefix else "")
    return {name: rules.get(name, NOT_NEGATIVE) for name in leaf_names(device)}


def _named_rules(form: _Form, prefix: str) -> dict[str, Rule]:
    rules = {prefix + name: rule for name, rule in {**form.required, **form.optional}.items()}
    for table, inner in form.tables.items():
        rules |= _named_rules(inner, f"{prefix}{table}.")
    return rules


class _Reader:
    """Reads tables of one file and gathers the sources of their numbers."""

    def __init__(self, where: str):
        self.where = where
        self.sources: dict[str, str] = {}
        self.calibration: str | None = None

    def unit(self, table: Any) -> Any:
        """The matrix unit of the kind that its table names."""
        if not isinstance(table, dict):
            raise EntryError(f"{self.where}: matrix_unit is {table!r}; it must be a table: write [matrix_unit]")
        table = dict(table)
        kind = table.pop("kind", None)
        if kind == "calibrated_gpu":
            return self.calibrated(table)
        if not isinstance(kind, str) or kind not in _UNITS:
            allowed = (*_UNITS, "calibrated_gpu")
            near = near_matches(kind, allowed) if isinstance(kind, str) else ""
            raise EntryError(f"{self.where}: matrix_unit.kind is {kind!r};{near} allowed: {', '.join(allowed)}")
        return self.read(table, _UNITS[kind], "matrix_unit")

    def decoder(self, table: Any) -> Decoder:
        """The decoders; never without a rate, as they would then be infinitely fast."""
        found = self.read(table, _DECODER, "decoder")
        name = "decoder.symbols_per_cycle"
        if name in self.sources:
            return found
        if found.kind not in _OWN_RATES:
            raise EntryError(
                f"{self.where}: {name} is missing, without which a decoder of kind {found.kind!r} would be infinitely fast; "
                f'add {name} = {{ value = …, source = "…" }}: values that one unit puts out per cycle'
            )
        rate, self.sources[name] = _OWN_RATES[found.kind]
        return dataclasses.replace(found, symbols_per_cycle=rate)

    def calibrated(self, table: dict[str, Any]) -> CalibratedGpu:
        """A calibrated GPU, by the name of its calibration; its fitted numbers have that calibration as their source."""
        form = _Form(dict, required=_positive("multiprocessors"), texts={"calibration": calibrated_names()})
        if "calibration" not in table:
            raise EntryError(
                f"{self.where}: matrix_unit.calibration is missing; allowed: {', '.join(form.texts['calibration'])}"
            )
        values = self.read(table, form, "matrix_unit")
        name = self.calibration = values["calibration"]
        unit = calibrated_unit(name, multiprocessors=values["multiprocessors"])
        record = calibration_record(name)
        tables = [entry["table"] for entry in record["formats"].values()] + [record["attention"]["table"]]
        source = f"calibrated: {', '.join(dict.fromkeys(tables))}; hwmodels/catalog/calibrated/{name}.toml"
        for leaf in leaf_names(unit):
            self.sources.setdefault(f"matrix_unit.{leaf}", source)
        return unit

    def read(self, table: Any, form: _Form, prefix: str, also: tuple[str, ...] = ()) -> Any:
        """The tree of a table; `also` are keys that the file may have beside the form's."""
        if not isinstance(table, dict):
            raise EntryError(
                f"{self.where}: {prefix} is {table!r}; it must be a table: write [{prefix}] above its fields"
            )
        dot = f"{prefix}." if prefix else ""
        numbers = {**form.required, **form.optional}
        allowed = (*form.required, *form.optional, *form.flags, *form.texts, *form.tables)
        for key in table:
            if key not in allowed:
                shown = (*(dot + name for name in self._leaves(form)), *also)
                raise EntryError(
                    f"{self.where}: unknown key {dot + key!r};{near_matches(dot + key, shown)} "
                    f"allowed: {', '.join(shown)}"
                )
        for key in form.required:
            if key not in table:
                raise EntryError(
                    f'{self.where}: {dot + key} is missing; add {dot + key} = {{ value = …, source = "…" }}'
                )
        values: dict[str, Any] = {}
        for key, rule in numbers.items():
            if key in table:
                name = f"{self.where}: {dot + key}"
                values[key] = read_value(table[key], rule, name)
                self.sources[dot + key] = read_source(table[key], name)
        for key in form.flags:
            if key in table and not isinstance(table[key], bool):
                raise EntryError(f"{self.where}: {dot + key} is {table[key]!r}; it must be true or false")
        values |= {key: table[key] for key in form.flags if key in table}
        for key, choices in form.texts.items():
            if (text := table.get(key, choices[0])) not in choices:
                raise EntryError(f"{self.where}: {dot + key} is {text!r}; allowed: {', '.join(choices)}")
            values[key] = text
        for key, inner in form.tables.items():
            values[key] = self.read(table.get(key, {}), inner, dot + key)
        return form.build(**values)

    def _leaves(self, form: _Form) -> list[str]:
        own = [*form.required, *form.optional, *form.flags, *form.texts]
        return own + [f"{table}.{name}" for table, inner in form.tables.items() for name in self._leaves(inner)]
