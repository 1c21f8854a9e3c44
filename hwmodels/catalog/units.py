"""Kinds of compute units that a device's file may name: the one place where a unit is registered.

A unit's class says itself which numbers a file gives (`hwmodels.numerics.fields`). One that is made otherwise has a reader of
its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from hwmodels.analysis.design_point import leaf_names
from hwmodels.catalog.calibrated import calibrated_unit
from hwmodels.catalog.calibrations import calibrated_names, calibration_record
from hwmodels.catalog.entries import (
    LARGEST,
    SMALLEST,
    EntryError,
    checked_table,
    near_matches,
    read_source,
    read_value,
    shown,
)
from hwmodels.catalog.forms import GIVEN, Form, TableReader, form_of, written, written_number
from hwmodels.compute.calibrated_gpu import CalibratedGpu
from hwmodels.compute.fpga_array import FpgaArray
from hwmodels.compute.host_and_near import HostAndNear
from hwmodels.compute.matrix_vector_npu import MatrixVectorNpu
from hwmodels.compute.measured_host import HostProducts, MeasuredHost
from hwmodels.compute.near_memory import NearMemoryUnit
from hwmodels.compute.roofline import RowCosts
from hwmodels.compute.systolic.unit import SystolicUnit
from hwmodels.compute.unit import SPREAD_PARTS, ComputeUnit, ErrorInterval
from hwmodels.compute.vector_array import VectorArray
from hwmodels.compute.vector_tile_kernels import VectorTileKernels
from hwmodels.numerics.fields import POSITIVE, Rule
from hwmodels.registry import Registry, lacking

__all__ = [
    "OVERLAP",
    "UNITS",
    "calibrated_sources",
    "read_measured_host",
    "read_unit",
    "written_unit",
]

# A measured machine's table in a device's file: the fitted numbers, the measured row costs, and what was held out.

#: Of a smooth maximum.
OVERLAP = Rule("a number in [0, 1]", lambda value: 0 <= value <= 1)

_NAME = "matrix_unit"

#: Of what is held out, what has no kernels of several widths.
_WHOLE = ("steps", "cycles")


def read_measured_host(reader: TableReader, table: dict[str, Any]) -> MeasuredHost:
    """The unit of its table without the kind.

    Raises:
        EntryError: a key unknown or missing, a value that breaks its rule, a source missing, no format.
    """
    rest = dict(table)
    overlap, remarks = rest.pop("overlap", None), rest.pop("remarks", [])
    held_out, formats = rest.pop("held_out", []), rest.pop("formats", None)
    if not isinstance(formats, dict) or not formats:
        raise EntryError(
            f"{reader.where}: {_NAME}.formats is {shown(formats)}; write [{_NAME}.formats.float32] above the numbers of "
            "a format"
        )
    if not isinstance(remarks, list) or not all(isinstance(text, str) for text in remarks):
        raise EntryError(f"{reader.where}: {_NAME}.remarks is {shown(remarks)}; it must be a list of sentences")
    if not isinstance(held_out, list):
        raise EntryError(
            f"{reader.where}: {_NAME}.held_out is {shown(held_out)}; write [[{_NAME}.held_out]] above each"
        )
    read = sorted((_format(reader, name, part) for name, part in formats.items()), key=lambda one: one[0])
    widths = tuple(bits for bits, *_ in read)
    if len(set(widths)) < len(widths):
        raise EntryError(f"{reader.where}: {_NAME}.formats have weight_bits {list(widths)}; they must differ")
    for index, (_, name, *_) in enumerate(read):
        for field in form_of(HostProducts).leaves():
            reader.sources[f"{_NAME}.formats.{index}.{field}"] = reader.sources.pop(f"{_NAME}.formats.{name}.{field}")
    joined = read_value(overlap, OVERLAP, f"{reader.where}: {_NAME}.overlap")
    form = dataclasses.replace(
        form_of(MeasuredHost),
        build=lambda **values: MeasuredHost(
            formats=tuple(numbers for _, _, numbers, _ in read),
            weight_widths=widths,
            row_costs=tuple(costs for *_, costs in read),
            overlap_temperature=joined,
            remarks=tuple(remarks),
            spreads=_spreads(held_out, f"{reader.where}: {_NAME}.held_out"),
            **values,
        ),
    )
    return reader.read(
        rest, form, _NAME, also=tuple(f"{_NAME}.{key}" for key in ("overlap", "remarks", "formats", "held_out"))
    )


def _format(reader: TableReader, name: str, table: Any) -> tuple[float, str, HostProducts, RowCosts | None]:
    prefix = f"{_NAME}.formats.{name}"
    where = f"{reader.where}: {prefix}"
    rest = dict(checked_table(table, prefix, reader.where))
    costs, bits = (
        rest.pop("row_costs", None),
        read_value(rest.pop("weight_bits", None), POSITIVE, f"{where}.weight_bits"),
    )
    numbers = reader.read(rest, form_of(HostProducts), prefix, also=(f"{prefix}.weight_bits", f"{prefix}.row_costs"))
    return bits, name, numbers, None if costs is None else _row_costs(costs, f"{where}.row_costs")


def _row_costs(table: Any, where: str) -> RowCosts:
    keys = {"weights", "rows", "factors", "source"}
    if not isinstance(table, dict) or set(table) != keys:
        raise EntryError(
            f"{where} has {shown(list(table) if isinstance(table, dict) else table)}; it must be a table of "
            f"{', '.join(sorted(keys))}"
        )
    read_source(table, where)
    try:
        return RowCosts(
            weights=tuple(map(float, table["weights"])),
            rows=tuple(map(float, table["rows"])),
            factors=tuple(tuple(map(float, row)) for row in table["factors"]),
        )
    except (TypeError, ValueError) as error:
        raise EntryError(f"{where}: {error}") from error


def _spreads(entries: list[Any], where: str) -> tuple[ErrorInterval, ...]:
    intervals = tuple(_spread(entry, f"{where}.{i}") for i, entry in enumerate(entries))
    seen: dict[tuple[str, float], int] = {}
    for i, one in enumerate(intervals):
        if one.coverage != intervals[0].coverage:
            raise EntryError(
                f"{where}.{i}.coverage is {one.coverage:g}; it must be that of {where}.0, {intervals[0].coverage:g}"
            )
        first = seen.setdefault((one.part, 0.0 if one.part in _WHOLE else one.bits), i)
        if first != i:
            raise EntryError(f"{where}.{i} is of {one.part} as {where}.{first} is; leave one of them out")
    return intervals


def _spread(entry: Any, where: str) -> ErrorInterval:
    numbers = ("bits", "low", "high", "coverage")
    if not isinstance(entry, dict) or not {"part", *numbers} <= set(entry):
        raise EntryError(f"{where} is {shown(entry)}; it must be a table with part, {', '.join(numbers)}")
    if entry["part"] not in SPREAD_PARTS:
        raise EntryError(f"{where}.part is {shown(entry['part'])}; allowed: {', '.join(SPREAD_PARTS)}")
    for name in numbers:
        value = entry[name]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not SMALLEST <= value <= LARGEST:
            raise EntryError(f"{where}.{name} is {shown(value)}; it must be a positive number")
    if entry["coverage"] >= 1:
        raise EntryError(f"{where}.coverage is {shown(entry['coverage'])}; it must be between 0 and 1, as 0.9 for 90 %")
    if entry["low"] > entry["high"]:
        raise EntryError(f"{where}.low is {entry['low']!r}; it must not exceed high, which is {entry['high']!r}")
    ends: dict[str, Any] = {name: float(entry[name]) for name in numbers}
    return ErrorInterval(entry["part"], **ends)


def _calibrated(reader: TableReader, table: dict[str, Any]) -> CalibratedGpu:
    """By the name of its calibration, which is the source of its fitted numbers."""
    form = Form(dict, required=form_of(CalibratedGpu).required, texts={"calibration": calibrated_names()})
    if "calibration" not in table:
        raise EntryError(
            f"{reader.where}: matrix_unit.calibration is missing; allowed: {', '.join(form.texts['calibration'])}"
        )
    values = reader.read(table, form, "matrix_unit")
    name = reader.calibration = values["calibration"]
    unit = calibrated_unit(name, multiprocessors=values["multiprocessors"])
    for leaf, source in calibrated_sources(name, unit).items():
        reader.sources.setdefault(leaf, source)
    return unit


def calibrated_sources(name: str, unit: CalibratedGpu) -> dict[str, str]:
    """Where each number of a calibrated unit comes from: dotted field of a device -> text."""
    record = calibration_record(name, unit.engine)
    entries = [record[part] for part in ("formats", "experts", "attention") if part in record]
    tables = [entry["table"] for part in entries for entry in part.values()]
    source = f"calibrated: {', '.join(dict.fromkeys(tables))}; hwmodels/catalog/calibrated/{name}/{unit.engine}.toml"
    return dict.fromkeys((f"matrix_unit.{leaf}" for leaf in leaf_names(unit)), source)


def _accept(name: str, unit: Any) -> type[ComputeUnit]:
    if not isinstance(unit, type) or not dataclasses.is_dataclass(unit):
        raise ValueError(f"unit {name!r} is {shown(unit)}; it must be a class of `flax.struct.dataclass`")
    members = (
        "short_title title unpacking elements hardware measured growth_remarks kernels kernel_shares operator_times"
    )
    if missing := lacking(unit, members):
        raise ValueError(f"{missing.replace('type', unit.__name__, 1)}; a unit has the members of `ComputeUnit`")
    form_of(unit)
    return unit  # pyright: ignore[reportReturnType] - it has the members


#: matrix_unit.kind of a file -> class, whose fields say what the rest of the table may have.
UNITS: Registry[type[ComputeUnit]] = Registry(
    "unit",
    {
        "systolic_array": SystolicUnit,
        "matrix_vector_npu": MatrixVectorNpu,
        "fpga_array": FpgaArray,
        "near_memory": NearMemoryUnit,
        "host_and_near": HostAndNear,
        "vector_array": VectorArray,
        "vector_tile_kernels": VectorTileKernels,
        "calibrated_gpu": CalibratedGpu,
        "measured_host": MeasuredHost,
    },
    _accept,
)

#: Readers of tables that are no list of a class's fields.
_READERS = {"calibrated_gpu": _calibrated, "measured_host": read_measured_host}


def read_unit(reader: TableReader, table: Any) -> ComputeUnit:
    """The matrix unit of the kind that its table names.

    Raises:
        EntryError: no table, or of a kind that is not registered; what the kind's reader raises.
    """
    table = dict(checked_table(table, "matrix_unit", reader.where))
    kind = table.pop("kind", None)
    if not isinstance(kind, str) or kind not in UNITS:
        near = near_matches(kind, UNITS) if isinstance(kind, str) else ""
        raise EntryError(f"{reader.where}: matrix_unit.kind is {shown(kind)};{near} allowed: {', '.join(UNITS)}")
    if kind in _READERS:
        return _READERS[kind](reader, table)
    return reader.read(table, form_of(UNITS[kind]), "matrix_unit")


def written_unit(unit: ComputeUnit, sources: Mapping[str, str]) -> dict[str, Any]:
    """The table that `read_unit` makes this unit of.

    Raises:
        EntryError: a class that is not registered, fitted numbers, which are in files of their own, or see `written`.
    """
    kind = next((kind for kind, one in UNITS.items() if one is type(unit)), None)
    if kind is None:
        raise EntryError(f"its matrix unit, {type(unit).__name__}, is not registered; register it as a unit first")
    if isinstance(unit, CalibratedGpu):
        for name in calibrated_names():
            if unit == calibrated_unit(name, multiprocessors=float(unit.multiprocessors)):
                number = written_number(unit.multiprocessors, POSITIVE, GIVEN, "matrix_unit.multiprocessors")
                return {"kind": kind, "calibration": name, "multiprocessors": number}
    if kind in _READERS:
        raise EntryError(f"its matrix unit, {unit.title}, has fitted numbers; give the device's name or file instead")
    return {"kind": kind, **written(unit, form_of(type(unit)), sources, "matrix_unit.")}
