"""Kinds of compute units that a device's file may name: the one place where a unit is registered.

A unit's class says itself which numbers a file gives (`hwmodels.numerics.fields`). One that is made otherwise has a reader of
its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from hwmodels.analysis.sensitivity import leaf_names
from hwmodels.catalog.calibrated import calibrated_unit
from hwmodels.catalog.calibrations import calibrated_names, calibration_record
from hwmodels.catalog.entries import EntryError, near_matches, shown
from hwmodels.catalog.forms import Form, TableReader, form_of
from hwmodels.catalog.measured_hosts import read_measured_host
from hwmodels.compute.calibrated_gpu import CalibratedGpu
from hwmodels.compute.fpga_array import FpgaArray
from hwmodels.compute.host_and_near import HostAndNear
from hwmodels.compute.matrix_vector_npu import MatrixVectorNpu
from hwmodels.compute.near_memory import NearMemoryUnit
from hwmodels.compute.systolic.unit import SystolicUnit
from hwmodels.compute.unit import ComputeUnit
from hwmodels.compute.vector_array import VectorArray
from hwmodels.compute.vector_tile_kernels import VectorTileKernels

__all__ = ["UNITS", "UnitReader", "calibrated_sources", "read_unit", "table_of"]

#: Makes a unit of its table, without the kind.
UnitReader: TypeAlias = Callable[[TableReader, dict[str, Any]], ComputeUnit]


def table_of(unit: type) -> UnitReader:
    """Reader of a table with the fields of the unit's class, each with the rule that the field states."""
    return lambda reader, table: reader.read(table, form_of(unit), "matrix_unit")


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


#: matrix_unit.kind of a file -> what reads the rest of the table.
UNITS: dict[str, UnitReader] = {
    "systolic_array": table_of(SystolicUnit),
    "matrix_vector_npu": table_of(MatrixVectorNpu),
    "fpga_array": table_of(FpgaArray),
    "near_memory": table_of(NearMemoryUnit),
    "host_and_near": table_of(HostAndNear),
    "vector_array": table_of(VectorArray),
    "vector_tile_kernels": table_of(VectorTileKernels),
    "calibrated_gpu": _calibrated,
    "measured_host": read_measured_host,
}


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
    return UNITS[kind](reader, table)
