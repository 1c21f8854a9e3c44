"""One tensor of a container: its entry in the directory, checked, and its division into chunks."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import reprlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from jaxspec.errors import InputError, one_line
from jaxspec.formats.container.layout import Section, damaged

__all__ = [
    "CHUNK_ELEMENTS",
    "MOST_AXES",
    "NAMED_FIELDS",
    "PATTERN_DTYPES",
    "HeaderError",
    "PlacedTensor",
    "StoredTensor",
    "TensorForm",
    "Whole",
    "chunk_elements",
    "header_of_text",
    "inline_tensor",
    "is_text",
    "padded_length",
    "parse_header",
    "text_of_header",
    "with_dtypes",
]


#: Elements that are coded at once: enough that jitted code runs at speed, few enough that their results stay in memory that
#: the allocator hands out again (above 32 MB it maps fresh pages for every chunk, which took half the time of decoding).
CHUNK_ELEMENTS = 1 << 22

#: Unsigned integers that hold one element of a dtype, by safetensors' spelling; other dtypes are bytes.
PATTERN_DTYPES = {
    "F8_E4M3": np.dtype("<u1"),
    "F8_E5M2": np.dtype("<u1"),
    "BF16": np.dtype("<u2"),
    "F16": np.dtype("<u2"),
    "F32": np.dtype("<u4"),
}

#: Named fields of the known number formats, most significant first; the mantissa of float32 in two halves of the pattern.
NAMED_FIELDS = {
    "F8_E4M3": {"sign": 1, "exponent": 4, "mantissa": 3},
    "F8_E5M2": {"sign": 1, "exponent": 5, "mantissa": 2},
    "BF16": {"sign": 1, "exponent": 8, "mantissa": 7},
    "F16": {"sign": 1, "exponent": 5, "mantissa": 10},
    "F32": {"sign": 1, "exponent": 8, "mantissa_high": 7, "mantissa_low": 16},
}

#: Axes that a tensor has at most.
MOST_AXES = 64

_DIGEST = re.compile(r"[0-9a-f]{64}")


class TensorForm(NamedTuple):
    """What a tensor is, whatever its coding.

    Attributes:
        dtype: safetensors' spelling.
        bytes: of the tensor as it was.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int

    @property
    def pattern_dtype(self) -> np.dtype:
        """Of the chunks that codecs work on; bytes where the dtype is not a known number format."""
        return PATTERN_DTYPES.get(self.dtype, np.dtype("u1"))

    @property
    def elements(self) -> int:
        """Chunks are counted in these."""
        return self.bytes // self.pattern_dtype.itemsize

    @property
    def columns(self) -> int:
        """Length of a row: the last axis."""
        return self.shape[-1] if self.shape else 1

    def in_dtype(self, dtype: str) -> TensorForm:
        """The same in another of the known number formats; itself where none is named."""
        if not dtype:
            return self
        return self._replace(dtype=dtype, bytes=self.elements * PATTERN_DTYPES[dtype].itemsize)


#: Why a tensor is stored as it is: no codec for its form, not to be divided, or no gain.
Why = Literal["form", "asked", "gain"]


class Whole(NamedTuple):
    """Why a tensor is stored as it is by a scheme that codes others.

    Attributes:
        why: "form" (the scheme codes no such tensor), "asked" (its division leaves it whole), "gain" (coded it would be no
            smaller).
        coded_bytes, draft_bytes: what it would take coded, its entry in the directory included, and its draft's part of
            that; at least, where coding was given up before the end. None where it was not tried.
    """

    why: Why
    coded_bytes: int | None = None
    draft_bytes: int | None = None


def chunk_elements(unit: int) -> int:
    """Elements per chunk, a multiple of `unit` (a whole row, say)."""
    return max(1, CHUNK_ELEMENTS // unit) * unit


def padded_length(length: int) -> int:
    """The next of few lengths: arrays that differ a little from chunk to chunk would each compile their decoder anew."""
    step = max(256, 1 << max(0, length.bit_length() - 3))
    return -(-length // step) * step


class StoredTensor(NamedTuple):
    """An entry of the directory.

    Attributes:
        file: index into the directory's list of files.
        sha256: of the tensor as unpacking gives it.
        draft_sha256: of the values that a draft computes with.
        codec: name; `coding` is what that codec wrote about this tensor.
        chunk_elements: elements per chunk but the last.
        chunks: of each chunk, role -> section.
        whole: why it is stored as it is; None for coded tensors and where nothing was noted.
        inline: its bytes, of a short tensor that stands in the directory itself and has no chunks.
    """

    form: TensorForm
    file: int
    sha256: str
    draft_sha256: str
    codec: str
    coding: dict[str, Any]
    chunk_elements: int
    chunks: list[dict[str, Section]]
    whole: Whole | None = None
    inline: bytes | None = None

    def listed(self) -> dict[str, Any]:
        """The entry as JSON; of an inline tensor without the digests, which would be longer than some of them."""
        entry = self.form._asdict() | self._asdict()
        del entry["form"]
        if self.whole is None:
            del entry["whole"]
        if self.inline is None:
            del entry["inline"]
            return entry
        del entry["sha256"], entry["draft_sha256"]
        return entry | {"inline": base64.b64encode(self.inline).decode()}

    def stored_bytes(self) -> Counter[str]:
        """What it takes by role, all chunks together; its entry in the directory left out."""
        sizes: Counter[str] = Counter() if self.inline is None else Counter(bytes=len(self.inline))
        for chunk in self.chunks:
            for role, where in chunk.items():
                sizes[role] += where.length
        return sizes

    def counts(self) -> Iterator[int]:
        """Elements of each chunk."""
        for start in range(0, self.form.elements, self.chunk_elements):
            yield min(self.chunk_elements, self.form.elements - start)


def inline_tensor(form: TensorForm, file: int, content: bytes, whole: Whole | None) -> StoredTensor:
    """A tensor as it is, in the directory itself."""
    digest = hashlib.sha256(content).hexdigest()
    return StoredTensor(form, file, digest, digest, "raw", {}, max(1, form.elements), [], whole, content)


def is_text(value: Any) -> bool:
    """Whether this is a string that UTF-8 can write: JSON may hold halves of surrogate pairs."""
    if not isinstance(value, str):
        return False
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _parse_whole(listed: Any) -> Whole | None:
    if listed is None:
        return None
    whole = Whole(*listed)
    numbers = (whole.coded_bytes, whole.draft_bytes)
    if whole.why not in get_args(Why) or not all(x is None or _is_number(x) for x in numbers):
        raise ValueError("why it is stored as it is cannot be read")
    return whole


def _parse_inline(listed: Any) -> bytes | None:
    """Bytes of an inline tensor, spelled as `StoredTensor.listed` spells them."""
    if listed is None:
        return None
    content = base64.b64decode(listed, validate=True)
    if base64.b64encode(content).decode() != listed:
        raise ValueError("its bytes cannot be read")
    return content


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def parse_tensor(listed: Any, num_files: int, section: Callable[[Any], Section], path: Path) -> StoredTensor:
    """An entry of the directory, checked for what can be checked without its bytes.

    Args:
        section: turns a listed section into one that lies within the file.
    Raises:
        InputError: anything amiss.
    """
    try:
        form = TensorForm(listed["name"], listed["dtype"], tuple(listed["shape"]), listed["bytes"])
        known = PATTERN_DTYPES.get(form.dtype)
        good = (
            is_text(form.name)
            and is_text(form.dtype)
            and len(form.shape) <= MOST_AXES
            and all(map(_is_number, (*form.shape, form.bytes, listed["file"], listed["chunk_elements"])))
            and (known is None or math.prod(form.shape) * known.itemsize == form.bytes)
            and listed["file"] < num_files
            and isinstance(listed["codec"], str)
            and isinstance(listed["coding"], dict)
            and isinstance(listed["chunks"], list)
        )
        whole, inline = _parse_whole(listed.get("whole")), _parse_inline(listed.get("inline"))
        if inline is not None:
            good = good and listed["codec"] == "raw" and not listed["chunks"] and len(inline) == form.bytes
        else:
            good = good and 0 < listed["chunk_elements"] <= max(CHUNK_ELEMENTS, form.columns)
            good = good and all(_DIGEST.fullmatch(listed[key]) is not None for key in ("sha256", "draft_sha256"))
            good = good and len(listed["chunks"]) == -(-form.elements // listed["chunk_elements"])
        if not good:
            raise ValueError("a field is out of range")
        chunks = [{str(role): section(where) for role, where in chunk.items()} for chunk in listed["chunks"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(damaged(path, f"an entry of its directory cannot be read ({error!r})")) from error
    if inline is not None:
        return inline_tensor(form, listed["file"], inline, whole)
    tensor = StoredTensor(
        form,
        listed["file"],
        listed["sha256"],
        listed["draft_sha256"],
        listed["codec"],
        listed["coding"],
        listed["chunk_elements"],
        chunks,
        whole,
    )
    # Every codec takes at least a bit per element; one that claims more of them would have memory reserved for nothing.
    if any(count > 8 * sum(where.length for where in chunk.values()) for count, chunk in zip(tensor.counts(), chunks)):
        raise InputError(damaged(path, f"tensor {form.name!r} has more elements than its sections have bits"))
    return tensor


# The header of a safetensors file: which tensors its data are, and where each of them lies.

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
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise HeaderError("it lists a name twice")
    return entries


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
