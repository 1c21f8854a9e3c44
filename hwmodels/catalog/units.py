"""Kinds of compute units that a device's file may name: the one place where a unit is registered.

A unit's class says itself which numbers a file gives (`hwmodels.numerics.fields`). One that is made otherwise has a reader of
its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from hwmodels.analysis.sensitivity import leaf_names
from hwmodels.catalog.calibrated import calibrated_unit
from hwmodels.catalog.calibrations import calibrated_names, calibration_record
from hwmodels.catalog.entries import EntryError, near_matches, shown
from hwmodels.catalog.forms import GIVEN, Form, TableReader, form_of, written, written_number
from hwmodels.catalog.measured_hosts import read_measured_host
from hwmodels.compute.calibrated_gpu import CalibratedGpu
from hwmodels.compute.fpga_array import FpgaArray
from hwmodels.compute.host_and_near import HostAndNear
from hwmodels.compute.matrix_vector_npu import MatrixVectorNpu
from hwmodels.compute.measured_host import MeasuredHost
from hwmodels.compute.near_memory import NearMemoryUnit
from hwmodels.compute.systolic.unit import SystolicUnit
from hwmodels.compute.unit import ComputeUnit
from hwmodels.compute.vector_array import VectorArray
from hwmodels.compute.vector_tile_kernels import VectorTileKernels
from hwmodels.numerics.fields import POSITIVE
from hwmodels.registry import Registry, lacking

__all__ = ["UNITS", "calibrated_sources", "read_unit", "written_unit"]


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
    if not isinstance(table, dict):
        raise EntryError(f"{reader.where}: matrix_unit is {shown(table)}; it must be a table: write [matrix_unit]")
    table = dict(table)
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
