"""Measured times from a CSV file: one row per measurement, checked before anything is fitted to it.

A file of matrix products has the columns m, k, n, weight_bits, seconds; one of whole steps has batch, new_tokens,
context_tokens, weight_bits, seconds. Further columns are kept as text (the kernel's name, the day).
"""

from __future__ import annotations

import csv
import dataclasses
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["COLUMNS", "MeasurementError", "Measurements", "read_measurements", "write_measurements"]

#: What a file must have, by kind: the conditions, then the time.
COLUMNS = {
    "product": ("m", "k", "n", "weight_bits", "seconds"),
    "step": ("batch", "new_tokens", "context_tokens", "weight_bits", "seconds"),
}

#: Conditions that may be 0.
_MAY_BE_ZERO = {"context_tokens"}

_SHOWN = 5


class MeasurementError(ValueError):
    """A file of measurements is not what it should be: one line with the file, what came and what is allowed."""


@dataclasses.dataclass(frozen=True)
class Measurements:
    """Conditions (name -> "row") and the seconds measured there, "row"; `notes` are further columns as text."""

    conditions: dict[str, npt.NDArray[np.float64]]
    seconds: npt.NDArray[np.float64]
    notes: dict[str, list[str]]


def read_measurements(path: str | Path, *, kind: str = "product") -> Measurements:
    """Read and check a file.

    Args:
        path: a CSV file in UTF-8 with a header; numbers with a decimal point, times in seconds.
        kind: a key of `COLUMNS`.
    Raises:
        ValueError: `kind` is not in `COLUMNS`.
        MeasurementError: the file cannot be read, a column is missing or twice, or rows are bad (the lines are named).
    """
    required = _required(kind)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise MeasurementError(f"{path}: cannot be read as a text file in UTF-8: {error}") from error
    reader = csv.reader(text.splitlines(), skipinitialspace=True)
    header = [name.strip() for name in next(reader, [])]
    missing, twice = [c for c in required if c not in header], sorted({c for c in header if header.count(c) > 1})
    if missing or twice:
        raise MeasurementError(
            f"{path}: columns {missing} are missing and {twice} are there twice; the first line must name "
            f"{', '.join(required)}"
        )
    rows: list[list[float]] = []
    notes: dict[str, list[str]] = {name: [] for name in header if name not in required}
    bad: list[str] = []
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        row = dict(zip(header, cells))
        values, faults = _values(row, required) if len(cells) == len(header) else ([], [f"{len(cells)} cells"])
        if faults:
            bad.append(f"line {reader.line_num}: {', '.join(faults)}")
            continue
        rows.append(values)
        for name, cell in notes.items():
            cell.append(row[name].strip())
    if bad:
        more = f" and {len(bad) - _SHOWN} lines more" if len(bad) > _SHOWN else ""
        raise MeasurementError(
            f"{path}: {'; '.join(bad[:_SHOWN])}{more}; each row needs {len(header)} cells, and its numbers must be > 0 "
            "(context_tokens >= 0)"
        )
    if not rows:
        raise MeasurementError(f"{path}: no rows below the header; write one measurement per line")
    table = np.array(rows, np.float64)
    conditions = {name: table[:, i] for i, name in enumerate(required) if name != "seconds"}
    return Measurements(conditions, table[:, required.index("seconds")], notes)


def write_measurements(path: str | Path, measurements: Measurements, *, kind: str = "product") -> None:
    """Write a file that `read_measurements` reads back to the same numbers. Raises ValueError on an unknown kind."""
    required = _required(kind)
    columns: dict[str, list[str]] = {
        name: [repr(float(value)) for value in measurements.conditions[name]] for name in required if name != "seconds"
    }
    columns["seconds"] = [repr(float(value)) for value in measurements.seconds]
    columns |= measurements.notes
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values()))


def _required(kind: str) -> tuple[str, ...]:
    if kind not in COLUMNS:
        raise ValueError(f"kind {kind!r} is unknown; choose one of {', '.join(COLUMNS)}")
    return COLUMNS[kind]


def _values(row: dict[str, str], required: tuple[str, ...]) -> tuple[list[float], list[str]]:
    values, faults = [], []
    for name in required:
        try:
            value = float(row[name])
        except ValueError:
            value = math.nan
        # A comparison with NaN is false, so that a cell which is no number fails it too.
        if not (math.isfinite(value) and (value > 0 or (value == 0 and name in _MAY_BE_ZERO))):
            faults.append(f"{name} is {row[name].strip()!r}")
        values.append(value)
    return values, faults
