"""Requests of a user's own, from a CSV."""

from __future__ import annotations

import csv
import math
from array import array
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from hwmodels.serving.requests import Requests
from jaxspec.errors import InputError
from jaxspec.settings.coercion import shown

__all__ = ["read_trace"]

_COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens")

#: From the first arrival to the last: what float32 tells apart, a second in four months.
_SPAN_S = (1e-6, 1e7)


def read_trace(path: str) -> Requests:
    """The requests of a CSV, the first of which comes at 0 s.

    Raises:
        InputError: not such a file; a line that is no request; requests out of order, or fewer than two.
    """
    try:
        # Spreadsheets begin a CSV with a byte-order mark.
        with Path(path).open(encoding="utf-8-sig", newline="") as stream:
            lines, (arrival, prompt, output) = _columns(path, csv.reader(stream))
    except InputError:
        raise
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"trace {path!r} cannot be read as a CSV in UTF-8 ({error}); give another file") from error
    if len(arrival) < 2:
        raise InputError(f"trace {path!r} has {len(arrival)} requests; give at least two")
    if np.any(np.diff(arrival) < 0):
        late = int(np.flatnonzero(np.diff(arrival) < 0)[0])
        raise InputError(
            f"trace {path!r}, line {lines[late + 1]}: a request comes at {arrival[late + 1]:.9g} s, before the one above "
            f"at {arrival[late]:.9g} s; sort the file by arrival_s"
        )
    span_s, (least, most) = arrival[-1] - arrival[0], _SPAN_S
    if not least <= span_s <= most:
        raise InputError(
            f"trace {path!r}: its requests come within {span_s:g} s; allowed is {least:g} to {most:g} s from the first to the "
            "last: give arrivals in seconds, and spread requests that come all at once over a moment"
        )
    return Requests(*(jnp.asarray(column, jnp.float32) for column in (arrival - arrival[0], prompt, output)))


def _columns(path: str, reader: Any) -> tuple[np.ndarray, list[np.ndarray]]:
    """Number of each request's line, and what stands in it: a row at a time, since a trace of a day has millions."""
    filled = (line for line in reader if any(map(str.strip, line)))
    head = [name.strip() for name in next(filled, [])]
    if missing := [name for name in _COLUMNS if name not in head]:
        raise InputError(
            f"trace {path!r} has no column {', '.join(missing)}; its first line is {shown(','.join(head))} and must name "
            f"{', '.join(_COLUMNS)}, separated by commas"
        )
    if doubled := [name for name in _COLUMNS if head.count(name) > 1]:
        raise InputError(f"trace {path!r} has column {doubled[0]} {head.count(doubled[0])} times; leave one of them")
    places = [head.index(name) for name in _COLUMNS]
    numbers, found = array("q"), [array("d") for _ in _COLUMNS]
    for line in filled:
        numbers.append(reader.line_num)
        for column, value in zip(found, _row(path, reader.line_num, line, places, len(head)), strict=True):
            column.append(value)
    return np.asarray(numbers), [np.asarray(column) for column in found]


def _row(path: str, number: int, line: list[str], places: list[int], columns: int) -> list[float]:
    def refusal(why: str) -> InputError:
        return InputError(f"trace {path!r}, line {number}: {shown(','.join(line))} {why}")

    if any(field.strip() for field in line[columns:]):  # as of thousands that are set off by commas
        raise refusal(f"has {len(line)} fields for {columns} columns; give one for each")
    try:
        found = [float(line[place]) for place in places]
    except (ValueError, IndexError) as error:
        raise refusal(f"is no request; give a number for each of {', '.join(_COLUMNS)}") from error
    if not math.isfinite(found[0]) or not all(value.is_integer() and 1 <= value <= 1e7 for value in found[1:]):
        raise refusal("is no request; arrival_s is a number, tokens are whole numbers of 1 to 10,000,000")
    return found
