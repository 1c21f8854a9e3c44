"""Measured times as one table: what was measured here and what a user brings have the same columns, and the same file.

A row is one of a few parts: a product of matrices, attention of a layer, a whole decoding step, a whole draft-verify cycle, a
stream of bytes, and small things. What does not concern a part is left empty.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jaxspec.errors import InputError, hint
from jaxspec.settings.coercion import shown

__all__ = ["COLUMNS", "MOST_DRAFTED", "PARTS", "Row", "read_rows", "rows_text"]

#: Column -> what it says, in the order of a file.
COLUMNS = {
    "part": "product, attention, step, cycle, stream, lookup, sampling, turn or launch",
    "weight_bits": "bits per weight as it is held (product, step, cycle)",
    "batch": "sequences (all but stream, turn, launch)",
    "tokens": "new tokens of each sequence, drafted ones of a cycle; rows of a product are batch times tokens",
    "inner": "elements that are summed over (product), of a looked-up row (lookup)",
    "outer": "outputs of each row (product)",
    "context_tokens": "cached tokens of each sequence (attention, step, cycle)",
    "heads": "query heads (attention)",
    "kv_heads": "key heads (attention)",
    "head_dim": "elements of a head (attention)",
    "architecture": "catalog name or config.json of the network (step, cycle)",
    "layers": "layers of it that ran; all unless given (step, cycle)",
    "draft_layers": "layers of a draft network of the same widths; 0: a lookup in the text drafts (cycle)",
    "vocab_size": "tokens of the vocabulary (lookup, sampling, step, cycle; of the last two the network's own unless given)",
    "read_bytes": "bytes read before the same ones are read again (product, stream; a product's own unless given)",
    "seconds": "of one product, one layer's attention, one step, one pass over the bytes, one look-up of all rows, ...",
}

#: Part -> columns that it needs; others of it may be empty.
PARTS = {
    "product": ("weight_bits", "batch", "tokens", "inner", "outer", "seconds"),
    "attention": ("batch", "tokens", "context_tokens", "heads", "kv_heads", "head_dim", "seconds"),
    "step": ("weight_bits", "batch", "tokens", "context_tokens", "architecture", "seconds"),
    "cycle": ("weight_bits", "batch", "tokens", "context_tokens", "architecture", "draft_layers", "seconds"),
    "stream": ("read_bytes", "seconds"),
    "lookup": ("batch", "tokens", "inner", "vocab_size", "seconds"),
    "sampling": ("batch", "tokens", "vocab_size", "seconds"),
    "turn": ("seconds",),
    "launch": ("seconds",),
}
_OPTIONAL = {"product": ("read_bytes",), "step": ("layers", "vocab_size"), "cycle": ("layers", "vocab_size")}
_TEXTS = ("part", "architecture")
_WHOLE = ("batch", "tokens", "inner", "outer", "heads", "kv_heads", "head_dim", "layers", "draft_layers", "vocab_size")
#: Drafted tokens of a measured cycle.
MOST_DRAFTED = 64

_MAY_BE_ZERO = ("context_tokens", "draft_layers")

#: Least time of a row: a cycle of a fast clock. Rates of shorter ones overflow in the fit.
_LEAST_S = 1e-10

#: Operations, or bytes, per second that no processor does, nor will soon: several times those of the fastest in 4 bits.
_MOST_RATE = 1e17

#: Bits of the widest weights.
_MOST_BITS = 64


@dataclasses.dataclass(frozen=True)
class Row:
    """One measured time; see `COLUMNS`. Numbers that do not concern its part are NaN."""

    part: str
    seconds: float
    weight_bits: float = math.nan
    batch: float = math.nan
    tokens: float = math.nan
    inner: float = math.nan
    outer: float = math.nan
    context_tokens: float = math.nan
    heads: float = math.nan
    kv_heads: float = math.nan
    head_dim: float = math.nan
    architecture: str = ""
    layers: float = math.nan
    draft_layers: float = math.nan
    vocab_size: float = math.nan
    read_bytes: float = math.nan

    @property
    def rows(self) -> float:
        """Rows of a product: all new tokens."""
        return self.batch * self.tokens

    @property
    def weights(self) -> float:
        """Elements of a product's matrix."""
        return self.inner * self.outer

    @property
    def rate(self) -> float:
        """Operations per second of a product."""
        return 2.0 * self.rows * self.weights / self.seconds

    @property
    def least_rate(self) -> float:
        """Operations per second of any part, or bytes, at least: of a step and a cycle a look at each cached token."""
        seen = self.rows * max(self.context_tokens, 1.0)
        least = {
            "product": self.rate * self.seconds,
            "attention": 4.0 * seen * self.heads * self.head_dim,
            "step": seen,
            "cycle": seen,
            "stream": self.read_bytes,
            "lookup": self.rows * self.inner,
            "sampling": self.rows * self.vocab_size,
        }
        return least.get(self.part, 0.0) / self.seconds

    @property
    def read(self) -> float:
        """Bytes read before the same ones are read again: of a product its own unless given."""
        return self.weights * self.weight_bits / 8 if math.isnan(self.read_bytes) else self.read_bytes


def rows_text(rows: Iterable[Row]) -> str:
    """A CSV file of rows, which `read_rows` reads back to the same numbers."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([_cell(getattr(row, name)) for name in COLUMNS])
    return text.getvalue()


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return (
        "" if math.isnan(value) else f"{value:g}" if float(value).is_integer() and value < 1e6 else repr(float(value))
    )


def read_rows(path: str | Path) -> list[Row]:
    """Read and check a file of measured times.

    Raises:
        InputError: it cannot be read; a column unknown, twice or missing; a cell that its part needs, or may not have: with
            line and column.
    """
    name = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"measurements {name!r} cannot be read ({reason}); give a CSV file in UTF-8") from error
    reader = csv.reader(io.StringIO(text), skipinitialspace=True, strict=True)
    rows: list[Row] = []
    try:
        header = [cell.strip() for cell in next(reader, [])]
        _check_header(header, name)
        for cells in reader:
            if any(cell.strip() for cell in cells):
                rows.append(_row(header, cells, f"{name}, line {reader.line_num}"))
    except csv.Error as error:
        raise InputError(f"{name}, line {reader.line_num}: not valid CSV ({error}); fix the line") from error
    if not rows:
        raise InputError(f"{name} has no rows below its header; write one measured time per line")
    return rows


def _check_header(header: list[str], name: str) -> None:
    for place, column in enumerate(header, start=1):
        if column not in COLUMNS:
            raise InputError(
                f"{name}, line 1, column {place}: {shown(column)} is unknown{hint(column, COLUMNS)} "
                "(jaxspec calibrate --example prints a file)"
            )
        if header.count(column) > 1:
            raise InputError(f"{name}, line 1: column {column} is there twice; leave one out")
    for column in ("part", "seconds"):
        if column not in header:
            raise InputError(f"{name}, line 1: column {column} is missing; jaxspec calibrate --example prints a file")


def _row(header: list[str], cells: list[str], where: str) -> Row:
    if len(cells) != len(header):
        raise InputError(f"{where}: {len(cells)} cells came; its header has {len(header)} columns")
    given = {column: cell.strip() for column, cell in zip(header, cells) if cell.strip()}
    part = given.pop("part", "")
    if part not in PARTS:
        raise InputError(f"{where}, column part: {shown(part)} is unknown; allowed: {', '.join(PARTS)}")
    allowed = (*PARTS[part], *_OPTIONAL.get(part, ()))
    for column in PARTS[part]:
        if column not in given:
            raise InputError(f"{where}, column {column}: empty; a {part} needs {', '.join(PARTS[part])}")
    for column in given:
        if column not in allowed:
            raise InputError(
                f"{where}, column {column}: {shown(given[column])} came, but a {part} has none; leave it empty"
            )
    values: dict[str, Any] = {
        column: text if column in _TEXTS else _number(text, column, where) for column, text in given.items()
    }
    return _checked(Row(part=part, **values), where)


def _number(text: str, column: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    needed = "a number >= 0" if column in _MAY_BE_ZERO else "a positive number"
    low = value >= 0 if column in _MAY_BE_ZERO else value > 0
    whole = column not in _WHOLE or value.is_integer() if math.isfinite(value) else False
    if not (math.isfinite(value) and low and value <= 1e18 and whole):
        needed = needed.replace("number", "whole number") if column in _WHOLE else needed
        raise InputError(f"{where}, column {column}: {shown(text)} came; it must be {needed}")
    return value


def _checked(row: Row, where: str) -> Row:
    if row.part == "attention" and row.heads % row.kv_heads:
        raise InputError(
            f"{where}, column heads: {row.heads:g} came; it must be a multiple of kv_heads, {row.kv_heads:g}"
        )
    if row.part == "cycle" and row.tokens > MOST_DRAFTED:
        raise InputError(f"{where}, column tokens: {row.tokens:g} came; a cycle drafts {MOST_DRAFTED} tokens at most")
    if not _LEAST_S <= row.seconds <= 3600:
        raise InputError(f"{where}, column seconds: {row.seconds:g} came; times are in seconds, {_LEAST_S:g} to 3600")
    if row.weight_bits > _MOST_BITS:
        raise InputError(
            f"{where}, column weight_bits: {row.weight_bits:g} came; a weight has {_MOST_BITS} bits at most"
        )
    if row.least_rate > _MOST_RATE:
        is_product, unit = row.part == "product", "bytes" if row.part == "stream" else "operations"
        what = f"{row.rows:g} rows by a matrix of {row.inner:g} x {row.outer:g}" if is_product else f"part {row.part}"
        raise InputError(
            f"{where}, column seconds: {row.seconds:g} came for {what}, which is {row.least_rate:.0e} {unit} per second; "
            f"allowed are {_MOST_RATE:.0e}: check sizes and unit"
        )
    return row
