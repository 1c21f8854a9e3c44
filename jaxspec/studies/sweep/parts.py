"""Parts of a sweep's file, written one by one and joined at the end, so that a killed sweep loses a part at most."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jaxspec.errors import InputError, one_line
from jaxspec.partial_files import whole_file
from jaxspec.studies.sweep.points_file import check_points, open_points, points_columns

__all__ = ["PART_CHUNKS", "check_counts", "drop_parts", "join_files", "part_ranges", "write_part", "writer_of"]

#: Chunks of a part: a million points, some seconds of work.
PART_CHUNKS = 32


def part_ranges(folder: Path, chunks: range) -> dict[Path, range]:
    """File of each part -> its chunks, in order."""
    ranges = [chunks[i : i + PART_CHUNKS] for i in range(0, len(chunks), PART_CHUNKS)]
    return {folder / f"{found.start:09d}-{found.stop:09d}.parquet": found for found in ranges}


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
        if (found := check_points(path)) != count:
            raise InputError(
                f"{str(path)!r} has {found:,} points instead of {count:,}; start its sweep anew with --force"
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
