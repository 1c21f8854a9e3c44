"""The Parquet file of a sweep: its columns with their statuses, read whole or in pieces."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hwmodels.analysis.design_point import DesignPoint
from jaxspec.errors import InputError, one_line

__all__ = [
    "COLUMNS",
    "INTERVAL_COLUMNS",
    "OF_THE_DEVICE",
    "POINTS_FILE",
    "check_points",
    "open_points",
    "points_columns",
    "points_schema",
    "read_pieces",
    "read_sweep",
]

#: Its name in a run directory.
POINTS_FILE = "sweep.parquet"

#: Result columns, in this order, behind the columns of the axes.
COLUMNS = (*(field.name for field in dataclasses.fields(DesignPoint)), "fits")

#: Ends of 90 % intervals, behind them where errors of a device's times, or of an engine's cycles, are known.
INTERVAL_COLUMNS = tuple(
    f"{name}_{side}"
    for name in ("cycle_s", "tokens_per_s", "speedup_vs_bf16_ar", "speedup_vs_stored_ar", "ar_bf16_s", "ar_stored_s")
    for side in ("low", "high")
)

#: Among the columns of results, sums of the device's own data, where no technology says what its parts take.
OF_THE_DEVICE = ("capacity_bytes", "area_m2")


def points_schema(
    axes: tuple[str, ...], scheme: str, *, intervals: bool = False, of_the_device: tuple[str, ...] = OF_THE_DEVICE
) -> pa.Schema:
    """Columns with their types, and the status of each in the file's metadata.

    Args:
        axes: names of the axes. scheme: whose widths axes begin with.
        intervals: whether `INTERVAL_COLUMNS` are among them.
        of_the_device: results that are data of the devices.
    """
    fields = [pa.field(name, pa.string()) for name in ("architecture", "device")]
    fields += [pa.field(name, pa.float64()) for name in axes]
    kinds = {"draft_length": pa.int32(), "fits": pa.bool_()}
    results = (*COLUMNS, *(INTERVAL_COLUMNS if intervals else ()))
    fields += [pa.field(name, kinds.get(name, pa.float32())) for name in results]
    given = {"architecture", "device", *axes, *of_the_device}
    statuses = {f"status:{field.name}": "input" if field.name in given else "predicted" for field in fields}
    return pa.schema(fields, metadata={"schema_version": "1", "scheme": scheme} | statuses)


def read_sweep(path: str | Path) -> dict[str, np.ndarray]:
    """Columns of a sweep by name.

    Args:
        path: the Parquet file, or the run directory that holds it.
    Raises:
        InputError: no such file, or none of ours.
    """
    try:
        with open_points(_file(path)) as file:
            return points_columns(file.read())
    except (OSError, ValueError) as error:  # Arrow's own are both
        raise _unreadable(path, error) from error


def read_pieces(path: str | Path) -> Iterator[dict[str, np.ndarray]]:
    """Columns of a sweep, one piece of its points after another, as they were written.

    Args:
        path: the Parquet file, or the run directory that holds it.
    Raises:
        InputError: no such file, or none of ours.
    """
    try:
        with open_points(_file(path)) as file:
            for group in range(file.num_row_groups):
                yield points_columns(file.read_row_group(group))
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def check_points(path: str | Path) -> int:
    """Number of points of a sweep's file. Raises InputError: no such file, or none of ours."""
    try:
        return pq.read_metadata(_file(path)).num_rows
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def open_points(path: Path) -> pq.ParquetFile:
    """A file of points whose pages are compared with their checksums as they are read. Raises what Arrow does."""
    return pq.ParquetFile(path, page_checksum_verification=True)


def points_columns(table: pa.Table) -> dict[str, np.ndarray]:
    """Columns of a table by name."""
    return {name: table.column(name).to_numpy() for name in table.column_names}


def _file(path: str | Path) -> Path:
    path = Path(path)
    return path / POINTS_FILE if path.is_dir() else path


def _unreadable(path: str | Path, error: Exception) -> InputError:
    return InputError(
        f"sweep {str(_file(path))!r} cannot be read: {one_line(error)}; give a run directory or its .parquet"
    )
