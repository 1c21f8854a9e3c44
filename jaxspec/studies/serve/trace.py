"""Requests of a user's own, from a CSV."""

from __future__ import annotations

import csv
import math
from pathlib import Path

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
        text = Path(path).read_text(encoding="utf-8-sig")
        numbered = [
            (number, line) for number, line in enumerate(csv.reader(text.splitlines()), 1) if any(map(str.strip, line))
        ]
    except (OSError, UnicodeDecodeError, ValueError, csv.Error) as error:
        raise InputError(f"trace {path!r} cannot be read as a CSV in UTF-8 ({error}); give another file") from error
    head = [name.strip() for name in numbered[0][1]] if numbered else []
    if missing := [name for name in _COLUMNS if name not in head]:
        raise InputError(
            f"trace {path!r} has no column {', '.join(missing)}; its first line is {shown(','.join(head))} and must name "
            f"{', '.join(_COLUMNS)}, separated by commas"
        )
    if doubled := [name for name in _COLUMNS if head.count(name) > 1]:
        raise InputError(f"trace {path!r} has column {doubled[0]} {head.count(doubled[0])} times; leave one of them")
    places = [head.index(name) for name in _COLUMNS]
    rows = [_row(path, number, line, places, len(head)) for number, line in numbered[1:]]
    if len(rows) < 2:
        raise InputError(f"trace {path!r} has {len(rows)} requests; give at least two")
    arrival, prompt, output = np.array(rows, np.float64).T
    if np.any(np.diff(arrival) < 0):
        late = int(np.flatnonzero(np.diff(arrival) < 0)[0])
        raise InputError(
            f"trace {path!r}, line {numbered[late + 2][0]}: a request comes at {arrival[late + 1]:.9g} s, before the one above "
            f"at {arrival[late]:.9g} s; sort the file by arrival_s"
        )
    span_s, (least, most) = arrival[-1] - arrival[0], _SPAN_S
    if not least <= span_s <= most:
        raise InputError(
            f"trace {path!r}: its requests come within {span_s:g} s; allowed is {least:g} to {most:g} s from the first to the "
            "last: give arrivals in seconds, and spread requests that come all at once over a moment"
        )
    return Requests(*(jnp.asarray(column, jnp.float32) for column in (arrival - arrival[0], prompt, output)))


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
