"""Tables of `jaxspec pack` and `jaxspec inspect`."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from statistics import fmean
from typing import Any

from jaxspec.errors import InputError
from jaxspec.report.columns import Column
from jaxspec.report.formatting import fixed, quantity, times
from jaxspec.report.terminal import Shown, Table
from jaxspec.results import UNKNOWN, Quantity, measured
from jaxspec.studies.pack.result import DEQUANTIZED, PackResult, TensorResult

#: Rows of a table that was not asked to show every tensor; the largest kinds come first where there are more.
_MOST_ROWS = 200


#: What is said of tensors that are stored as they are.
_WHY_WHOLE = {
    "gain": "coded it would be no smaller",
    "asked": "to be whole in the draft as well (embedding, head, or not a matrix of the network)",
    "form": "the scheme codes no tensor of this dtype and shape",
}


@dataclasses.dataclass(frozen=True)
class TensorKind:
    """Tensors whose names differ in a number only, and that have one form and codec.

    Attributes:
        name: of the one tensor, or with "*" for the number.
        mean: one tensor with their means and the sum of their bytes.
    """

    name: str
    count: int
    mean: TensorResult


def _form_in_words(kind: TensorKind) -> str:
    return f"{kind.mean.dtype} {'x'.join(map(str, kind.mean.shape)) or 'scalar'}"


def _entropy(kind: TensorKind) -> Quantity[float]:
    return measured(sum(kind.mean.entropy.values()) if kind.mean.entropy else None)


def _two_digits(value: float) -> str:
    return fixed(value, 2)


_FORM = Column[TensorKind]("form", "", lambda kind: UNKNOWN, words=_form_in_words)


_ENTROPY = Column[TensorKind](
    "entropy",
    "bits per value",
    _entropy,
    _two_digits,
    words=lambda kind: "" if _entropy(kind).number is None else fixed(_entropy(kind).number, 2),
)


_CODEC = Column[TensorKind]("codec", "", lambda kind: UNKNOWN, words=lambda kind: kind.mean.codec or "")


_TARGET = Column[TensorKind]("target\nbits", "per weight", "mean.target_bits_per_weight", _two_digits)


_DRAFT = Column[TensorKind]("draft\nbits", "per weight", "mean.draft_bits_per_weight", _two_digits)


_RATIO = Column[TensorKind]("ratio", "uncompressed over stored", "mean.ratio", times)


def tensor_table(result: PackResult, *, every: bool = False) -> Table:
    """One row per kind of tensor (names that differ in a number only, means over them), or one per tensor."""
    kinds = [TensorKind(each.name, 1, each) for each in result.tensors] if every else grouped(result.tensors)
    left_out = 0 if every else max(0, len(kinds) - _MOST_ROWS)
    if left_out:
        kinds = sorted(kinds, key=lambda kind: -kind.mean.bytes)[:_MOST_ROWS]
    lines = [container_caption(result), *whole_lines(result), *wider_lines(result)]
    lines += [f"{left_out} more kinds of tensors, all smaller: see --all or --json"] if left_out else []
    table = Table(container_title(result), "\n".join(lines))
    columns = [_FORM]
    columns += [_ENTROPY] if any(kind.mean.entropy for kind in kinds) else []
    if result.scheme is not None:
        columns += [_CODEC, _TARGET]
        columns += [_DRAFT] if result.draft_bits_per_weight.value is not None else []
        columns += [_RATIO]
    table.add_column("tensor")
    for column in columns:
        table.add_column(column.heading, justify="left" if column in (_FORM, _CODEC) else "right")
    for kind in kinds:
        count = f" ({kind.count})" if kind.count > 1 else ""
        table.add_row(kind.name + count, *(column.text(kind) for column in columns))
    return table


def whole_lines(result: PackResult) -> list[str]:
    """Why tensors of a coding scheme are stored as they are: one line per reason, with the worst tensor as an example."""
    lines = []
    for why, meaning in _WHY_WHOLE.items():
        raw = [(each.whole.coded_bytes, each) for each in result.tensors if each.whole and each.whole.why == why]
        if not raw:
            continue
        coded, largest = max(raw, key=lambda pair: (pair[0] or 0, pair[1].bytes))
        line = f"{len(raw)} tensors raw: {meaning}" if len(raw) > 1 else f"1 tensor raw: {meaning}"
        if coded is not None:
            sizes = f"{quantity('_bytes', coded)} or more instead of {quantity('_bytes', largest.bytes)}"
            line += f" ({largest.name}: {sizes})"
        lines.append(line)
    return lines


def wider_lines(result: PackResult) -> list[str]:
    """What is given back in another type than it was packed in: one line per type."""
    counts = Counter(each.unpacked_dtype for each in result.tensors if each.unpacked_dtype)
    return [
        f"{count} tensor{'s' if count > 1 else ''} given back in {dtype}: integers times scales fit no 16 bits"
        for dtype, count in counts.items()
    ]


def grouped(tensors: list[TensorResult]) -> list[TensorKind]:
    """Tensors by kind, in the order of the first of each."""
    groups: dict[tuple[Any, ...], list[TensorResult]] = {}
    for tensor in tensors:
        pattern = re.sub(r"(?<=\.)\d+(?=\.)", "*", tensor.name)
        groups.setdefault((pattern, tensor.dtype, *tensor.shape, tensor.codec), []).append(tensor)
    return [
        TensorKind(pattern if len(members) > 1 else members[0].name, len(members), _mean_tensor(members))
        for (pattern, *_), members in groups.items()
    ]


def _mean_tensor(members: list[TensorResult]) -> TensorResult:
    roles = sorted({role for member in members for role in member.bits_by_section})
    sections = [member.bits_by_section for member in members if member.bits_by_section]
    entropy = [member.entropy for member in members if member.entropy]
    return dataclasses.replace(
        members[0],
        bytes=sum(member.bytes for member in members),
        ratio=_mean([member.ratio for member in members]),
        target_bits_per_weight=_mean([member.target_bits_per_weight for member in members]),
        draft_bits_per_weight=_mean([member.draft_bits_per_weight for member in members]),
        bits_by_section={role: fmean(section.get(role, 0.0) for section in sections) for role in roles},
        entropy={field: fmean(each[field] for each in entropy) for field in entropy[0]} if entropy else None,
    )


def _mean(values: list[Quantity[float]]) -> Quantity[float]:
    known = [value.value for value in values if value.value is not None]
    return measured(fmean(known) if known else None)


def container_title(result: PackResult) -> str:
    """What the file is, in a line."""
    if result.scheme is None:
        tensors = quantity("_bytes", result.tensor_bytes)
        blocks = (result.options or {}).get(DEQUANTIZED)
        read = f", read as the bfloat16 values that {blocks} stand for" if blocks else ""
        return f"{result.checkpoint or ''}: {tensors} of tensors, not packed{read}"
    kind = "lossless" if result.lossless else "NOT lossless"
    size = quantity("_bytes", result.file_bytes or 0)
    return f"{result.container or ''}: scheme {result.scheme}, {kind}, {size}"


def container_caption(result: PackResult) -> str:
    """Its measured sizes, in a line."""
    if result.scheme is None:
        return (
            "entropy in bits per value (measured): below it no code of that field alone can go; pack with: jaxspec pack"
        )
    bits, draft = result.target_bits_per_weight.number, result.draft_bits_per_weight.number
    line = f"measured: {fixed(bits, 3)} bits per weight"
    if result.ratio.number is not None:
        line += f", ratio {times(result.ratio.number, 3)}"
    return line if draft is None else f"{line}; the draft reads {fixed(draft, 3)} bits per weight"


def code_tables(result: PackResult, name: str) -> list[Table]:
    """Codewords of one tensor: symbol, bits.

    Raises:
        InputError: no such tensor, or one without codes.
    """
    tensor = next((each for each in result.tensors if each.name == name), None)
    if tensor is None:
        near = ", ".join(each.name for each in result.tensors[:3])
        raise InputError(f"tensor {name!r} is not in this file; there are {near}, ...: see jaxspec inspect")
    if not tensor.code_tables:
        raise InputError(f"tensor {name!r} has no code tables: it is stored as {tensor.codec or 'bytes'}")
    tables = []
    for what, lengths in tensor.code_tables.items():
        table = Table(title=f"{name}: {what}, {len(lengths)} symbols")
        table.add_columns("symbols", "bits each")
        by_length: dict[int, list[str]] = {}
        for symbol, bits in lengths.items():
            by_length.setdefault(bits, []).append(symbol)
        for bits, symbols in sorted(by_length.items()):
            table.add_row(" ".join(symbols), str(bits))
        tables.append(table)
    return tables


def shown(result: PackResult) -> Shown:
    """The table of a container for the terminal."""
    return Shown(result.plain(), [tensor_table(result)])
