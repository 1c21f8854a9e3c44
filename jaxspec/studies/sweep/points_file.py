"""Points of a sweep in Parquet files: the file of all, and parts of one that is under way."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hwmodels.analysis.design_point import DesignPoint
from jaxspec.errors import InputError, one_line
from jaxspec.partial_files import whole_file

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


#: Chunks of a part: a million points, some seconds of work.
PART_CHUNKS = 32


def part_ranges(folder: Path, chunks: range) -> dict[Path, range]:
    """File of each part -> its chunks, in order."""
    ranges = [chunks[i : i + PART_CHUNKS] for i in range(0, len(chunks), PART_CHUNKS)]
    return {folder / f"{span.start:09d}-{span.stop:09d}.parquet": span for span in ranges}


def writer_of(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """A writer of a sweep's file: one row group per piece, axes coded as the few values they have, pages with checksums."""
    repeated = [field.name for field in schema if not pa.types.is_float32(field.type)]
    options: dict[str, Any] = {"compression": "zstd", "use_dictionary": repeated, "write_page_checksum": True}
    return pq.ParquetWriter(path, schema, **options)


def write_part(
    path: Path, schema: pa.Schema, pieces: Iterable[dict[str, np.ndarray]], each: Callable[[], None]
) -> None:
    """Write a part, whole or not at all.

    Args:
        each: called after each piece.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial, writer_of(partial, schema) as writer:
        for piece in pieces:
            writer.write_table(pa.table(piece, schema=schema))
            each()


def check_counts(sources: Mapping[Path, int]) -> None:
    """Every file has as many points as it should; tells by its end, before all of it is read.

    Raises:
        InputError: one that cannot be read, or has another number of points.
    """
    for path, count in sources.items():
        if (counted := check_points(path)) != count:
            raise InputError(
                f"{str(path)!r} has {counted:,} points instead of {count:,}; start its sweep anew with --force"
            )


def join_files(sources: Iterable[Path], schema: pa.Schema, path: Path) -> Iterator[dict[str, np.ndarray]]:
    """Join files of points into one, piece by piece, and pass the pieces on; the file is there when all are taken.

    Raises:
        InputError: a source cannot be read, or has other columns.
    """
    with whole_file(path) as partial, writer_of(partial, schema) as writer:
        for source in sources:
            for piece in _tables(source):
                if piece.schema != schema:
                    raise InputError(f"{str(source)!r} has other columns than this sweep; start it anew with --force")
                writer.write_table(piece)
                yield points_columns(piece)


def _tables(path: Path) -> Iterator[pa.Table]:
    try:
        with open_points(path) as file:
            for group in range(file.num_row_groups):
                yield file.read_row_group(group)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{str(path)!r} cannot be read: {one_line(error)}; start its sweep anew with --force"
        ) from error


def drop_parts(folder: Path) -> None:
    """Remove the parts of a finished sweep, and the folder around them if nothing else is in it."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()
