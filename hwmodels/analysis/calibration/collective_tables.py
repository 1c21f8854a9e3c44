"""Measured times of collectives: an engine's own all-reduce, and those of the NCCL library."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hwmodels.analysis.calibration.kernel_tables import KernelTableError, TableName, read_columns
from hwmodels.parallel.collectives import Collective

__all__ = ["NCCL", "CollectiveTable", "collective_table", "joined"]

#: Stands for an engine in names of the library's tables.
NCCL = "nccl"

#: Both tables count elements of two bytes.
_ELEMENT_BYTES = 2.0

#: Collective -> what the library's tables call it.
_LIBRARY_NAMES: dict[Collective, str] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "alltoall",
}


@dataclasses.dataclass(frozen=True)
class CollectiveTable:
    """Times of one collective of 16-bit elements, "row"."""

    devices: npt.NDArray[np.float64]
    message_bytes: npt.NDArray[np.float64]
    seconds: npt.NDArray[np.float64]


def collective_table(
    table: TableName, collective: Collective = "all_reduce", *, root: str | Path | None = None
) -> CollectiveTable:
    """Rows of one collective; of an engine's own all-reduce those of a captured graph, as engines run it.

    Args:
        table: of kind "all_reduce" or "nccl".
        root: as of `list_tables`.
    Raises:
        KernelTableError: the table cannot be read, or holds no such rows.
    """
    names = ["num_gpus", "message_size", "latency"]
    if table.kind == "all_reduce":
        columns = read_columns(table, [*names, "kernel_source"], root)
        used = np.array([not str(name).endswith("eager") for name in columns["kernel_source"]])
        if collective != "all_reduce":
            raise KernelTableError(f"{table} holds all_reduce alone, not {collective}; take the library's table")
    else:
        columns = read_columns(table, [*names, "op_name", "nccl_dtype"], root)
        used = (columns["op_name"] == _LIBRARY_NAMES.get(collective)) & (columns["nccl_dtype"] == "half")
    used &= columns["latency"] > 0
    if not used.any():
        raise KernelTableError(f"{table} holds no rows of {collective}; see --list for others")
    devices, elements, milliseconds = (columns[name][used].astype(np.float64) for name in names)
    return CollectiveTable(devices, _ELEMENT_BYTES * elements, 1e-3 * milliseconds)


def joined(tables: Sequence[CollectiveTable]) -> CollectiveTable:
    """Rows of several tables, one after the other."""
    of = lambda name: np.concatenate([getattr(table, name) for table in tables])
    return CollectiveTable(of("devices"), of("message_bytes"), of("seconds"))
