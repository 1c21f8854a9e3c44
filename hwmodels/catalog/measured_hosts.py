"""A measured machine's table in a device's file: the fitted numbers, the measured row costs, and what was held out.

[matrix_unit]
kind = "measured_host"
overlap = { value = 1.0, source = "..." }
cache_bytes = { value = 3e7, source = "..." }
cache_sharpness = { value = 2.0, source = "..." }
remarks = ["..."]
[matrix_unit.attention]
[matrix_unit.between]
...
[matrix_unit.formats.float32]
weight_bits = { value = 32, source = "..." }
launch_s = { value = 2e-6, source = "..." }
...
[matrix_unit.formats.float32.row_costs]
weights = [65536, 4358144]
rows = [1, 2, 3]
factors = [[0.5, 1.0, 1.1], [0.7, 1.0, 1.0]]
source = "..."
[[matrix_unit.held_out]]
part = "products"
bits = 32
low = 0.9
high = 1.2
coverage = 0.9

Row costs and what was held out may be absent; further keys of the latter (rows, errors) are for readers. All intervals are for
one coverage; whole steps and whole cycles have one each, other parts one for each number of bits.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from hwmodels.catalog.entries import LARGEST, SMALLEST, EntryError, read_source, read_value, shown
from hwmodels.catalog.forms import TableReader, form_of
from hwmodels.compute.measured_host import HostProducts, MeasuredHost
from hwmodels.compute.row_costs import RowCosts
from hwmodels.compute.unit import SPREAD_PARTS, ErrorInterval
from hwmodels.numerics.fields import POSITIVE, Rule

__all__ = ["OVERLAP", "read_measured_host"]

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
    if not isinstance(table, dict):
        raise EntryError(f"{where} is {shown(table)}; it must be a table: write [{prefix}] above its fields")
    rest = dict(table)
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
