"""The header of a safetensors file: which tensors its data are, and where each of them lies."""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxspec.errors import one_line
from jaxspec.formats.container.tensors import MOST_AXES, TensorForm, is_text

__all__ = ["HeaderError", "PlacedTensor", "header_of_text", "parse_header", "text_of_header", "with_dtypes"]

#: Bits of an element, by safetensors' spelling; the size of other dtypes is not known here.
_BITS = (
    dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8)
    | dict.fromkeys(("U16", "I16", "F16", "BF16"), 16)
    | dict.fromkeys(("U32", "I32", "F32"), 32)
    | dict.fromkeys(("U64", "I64", "F64", "C64"), 64)
    | {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
)

#: Bytes in front of the JSON: its length.
_LENGTH_BYTES = 8


class HeaderError(ValueError):
    """Bytes that are not the header of a safetensors file; readers say in which file."""


class PlacedTensor(NamedTuple):
    """A tensor of a header.

    Attributes:
        start: of its data, counted from the end of the header.
    """

    form: TensorForm
    start: int


def parse_header(header: bytes) -> list[PlacedTensor]:
    """The tensors of a header in the order of their data; of those that begin at one place, by name.

    Args:
        header: the first bytes of a file, up to where the data begin.
    Raises:
        HeaderError: no such header, a tensor listed twice, or data with holes or overlaps.
    """
    if len(header) < _LENGTH_BYTES or int.from_bytes(header[:_LENGTH_BYTES], "little") != len(header) - _LENGTH_BYTES:
        raise HeaderError(f"it has {len(header)} bytes, another number than it says")
    try:
        entries = json.loads(header[_LENGTH_BYTES:].decode("utf-8"), object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as error:
        raise HeaderError(f"it is not valid JSON ({one_line(error)})") from error
    if not isinstance(entries, dict):
        raise HeaderError("it is not a JSON object")
    entries.pop("__metadata__", None)
    placed = sorted((_placed(name, entry) for name, entry in entries.items()), key=lambda p: (p.start, p.form.name))
    end = 0
    for tensor in sorted(placed, key=lambda p: (p.start, p.form.bytes)):
        if tensor.start != end:
            raise HeaderError(f"the data of tensor {_short(tensor.form.name)} begin at {tensor.start}, not at {end}")
        end += tensor.form.bytes
    return placed


def text_of_header(header: bytes) -> str:
    """The JSON of a header that was parsed."""
    return header[_LENGTH_BYTES:].decode("utf-8")


def header_of_text(text: str) -> bytes:
    """Inverse of `text_of_header`.

    Raises:
        HeaderError: halves of surrogate pairs, which no file holds.
    """
    if not is_text(text):
        raise HeaderError("it is no text that UTF-8 can write")
    content = text.encode()
    return len(content).to_bytes(_LENGTH_BYTES, "little") + content


def with_dtypes(text: str, dtypes: Mapping[str, str]) -> str:
    """The text of a header that was parsed, with other dtypes of some tensors, and all data in the same order without holes.

    Args:
        dtypes: of known number formats, by tensor name; without any the text is given back word for word.
    """
    if not dtypes:
        return text
    entries, end = json.loads(text), 0
    # What is empty begins where another tensor does, and keeps doing so: readers order tensors by their beginning.
    for placed in sorted(parse_header(header_of_text(text)), key=lambda tensor: (tensor.start, tensor.form.bytes)):
        form = placed.form.in_dtype(dtypes.get(placed.form.name, ""))
        entries[form.name] |= {"dtype": form.dtype, "data_offsets": [end, end := end + form.bytes]}
    written = json.dumps(entries, separators=(",", ":"), ensure_ascii=False)
    # Data begin at a multiple of 8, as the format asks.
    return written + " " * (-len(written.encode()) % 8)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise HeaderError("it lists a name twice")
    return found


def _placed(name: str, entry: Any) -> PlacedTensor:
    """An entry, checked."""
    try:
        dtype, shape, (start, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        numbers = (*shape, start, end)
        good = is_text(name) and is_text(dtype) and len(shape) <= MOST_AXES and start <= end
        good = good and all(type(x) is int and 0 <= x < 1 << 62 for x in numbers)
    except (KeyError, TypeError, ValueError) as error:
        raise HeaderError(f"its entry of tensor {_short(name)} cannot be read ({type(error).__name__})") from error
    if not good or (dtype in _BITS and math.prod(shape) * _BITS[dtype] != 8 * (end - start)):
        raise HeaderError(f"its entry of tensor {_short(name)} is out of range")
    return PlacedTensor(TensorForm(name, dtype, shape, end - start), start)


def _short(name: str) -> str:
    return reprlib.repr(name)
