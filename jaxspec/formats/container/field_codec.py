"""Lossless coding of bit fields: chosen fields by Huffman codes over parallel streams, the others as packed planes.

Source: Huff-LLM, 3.1 (which fields, coded apart); the streams are those of `jaxspec.formats.huffman_streams`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.formats import bit_packing, fields
from jaxspec.formats.container.codec import Chunk, CodecError, Selection, Undivided, occurrences, take
from jaxspec.formats.container.tensors import CHUNK_ELEMENTS, PATTERN_DTYPES, TensorForm, Whole, padded_length
from jaxspec.formats.huffman import MAX_CODE_LENGTH, HuffmanCode, code_lengths, code_of_lengths, num_bits
from jaxspec.formats.huffman_streams import (
    HuffmanStreams,
    decode,
    decode_bfloat16,
    encode,
    entries,
    num_lanes,
    num_steps,
)

__all__ = [
    "FieldCodec",
    "Partition",
    "Plane",
    "field",
    "field_counts",
    "merge_fields",
    "packed_plane",
    "plane_form",
    "planes_of",
]


#: Chunks of fewer elements are counted field by field: going through all patterns of 16 bits would take longer.
_FEW_ELEMENTS = 1 << 14


def field_counts(chunks: Iterable[np.ndarray], widths: tuple[int, ...]) -> list[np.ndarray]:
    """Occurrences of each value of each field, exact; by way of the patterns' 16-bit halves, which are counted once.

    Raises:
        ValueError: a field that crosses the border between two halves.
    """
    bits, ends = sum(widths), list(accumulate(widths))
    for width, end in zip(widths, ends):
        if width > min(bits, 16) or end - width < 16 * ((end - 1) // 16):
            raise ValueError(f"field of {width} bits crosses a 16-bit half; allowed are fields within one: split it")
    counts, halves = [np.zeros(1 << width, np.int64) for width in widths], []
    for chunk in chunks:
        if chunk.size < _FEW_ELEMENTS:
            for width, end, counted in zip(widths, ends, counts):
                counted += np.bincount(chunk >> (bits - end) & ((1 << width) - 1), minlength=1 << width)
            continue
        parts = [chunk] if bits <= 16 else [(chunk >> 16).astype(np.uint16), (chunk & 0xFFFF).astype(np.uint16)]
        occurring = [occurrences(part, 1 << min(bits, 16)) for part in parts]
        halves = [a + b for a, b in zip(halves, occurring)] if halves else occurring
    for width, end, counted in zip(widths, ends, counts if halves else ()):
        half, below = divmod(end - 1, 16)
        values = np.arange(1 << min(bits, 16)) >> (min(bits, 16) - 1 - below) & ((1 << width) - 1)
        counted += np.bincount(values, weights=halves[half], minlength=1 << width).astype(np.int64)
    return counts


class Plane(NamedTuple):
    """Neighbouring fields that are stored as they are, together: at most 16 bits."""

    role: str
    fields: tuple[int, ...]
    width: int


def planes_of(widths: tuple[int, ...], coded: Iterable[int]) -> list[Plane]:
    """The fields that are not coded, gathered into planes."""
    groups: list[list[int]] = []
    for index in sorted(set(range(len(widths))) - set(coded)):
        if groups and sum(widths[i] for i in groups[-1]) + widths[index] <= 16:
            groups[-1].append(index)
        else:
            groups.append([index])
    return [Plane(f"plane{i}", tuple(g), sum(widths[j] for j in g)) for i, g in enumerate(groups)]


@partial(jax.jit, static_argnums=(1, 2))
def field(patterns: jax.Array, widths: tuple[int, ...], index: int) -> jax.Array:
    """One field of each pattern."""
    return fields.split(patterns, widths)[index]


def _joined(patterns: jax.Array, widths: tuple[int, ...], plane: Plane) -> jax.Array:
    parts = fields.split(patterns, widths)
    joined = jnp.zeros(patterns.shape, jnp.uint16)
    for index in plane.fields:
        joined = (joined << widths[index]) | parts[index].astype(jnp.uint16)
    return joined


@partial(jax.jit, static_argnums=(1, 2))
def packed_plane(patterns: jax.Array, widths: tuple[int, ...], plane: Plane) -> jax.Array:
    """A plane as it is stored: bytes and 16-bit numbers in order, other widths packed."""
    joined = _joined(patterns, widths, plane)
    if plane.width in (8, 16):
        return joined.astype(jnp.uint8 if plane.width == 8 else jnp.uint16)
    return bit_packing.pack(joined, width=plane.width)


def plane_form(plane: Plane, count: int) -> tuple[np.dtype, int]:
    """Dtype and number of items of a stored plane of `count` elements."""
    if plane.width in (8, 16):
        return np.dtype(f"<u{plane.width // 8}"), count
    return np.dtype("<u4"), bit_packing.num_words(count, plane.width)


@partial(jax.jit, static_argnums=(2, 3, 4))
def merge_fields(
    values: dict[int, jax.Array],
    packed: dict[str, jax.Array],
    widths: tuple[int, ...],
    planes: tuple[Plane, ...],
    n: int,
) -> jax.Array:
    """Patterns of n elements, from values of some fields and the planes that hold the others."""
    parts = dict(values)
    for plane in planes:
        content = packed[plane.role]
        joined = content if plane.width in (8, 16) else bit_packing.unpack(content, width=plane.width, count=n)
        for index in reversed(plane.fields):
            parts[index] = joined & joined.dtype.type((1 << widths[index]) - 1)
            joined = joined >> joined.dtype.type(widths[index]) if widths[index] < joined.dtype.itemsize * 8 else joined
    return fields.merge([parts[index] for index in range(len(widths))], widths)


#: A field is coded where that saves at least this share of its bits, its table included.
_LEAST_SAVING = 0.01

#: The partition that decodes and reassembles in one pass.
_BFLOAT16 = (1, 8, 7)


class Partition(NamedTuple):
    """Widths of the fields of a dtype, most significant first, and which of them may be coded."""

    widths: tuple[int, ...]
    coded: tuple[int, ...]


class FieldCodec(Undivided):
    """Huffman codes on the fields of a partition that has been fixed per dtype."""

    lossless = True

    def __init__(self, name: str, partitions: dict[str, Partition]):
        """Args: name: as the directory spells it; partitions: by dtype, in safetensors' spelling."""
        self.name, self._partitions = name, partitions
        self.dtypes = tuple(partitions)

    def unit(self, form: TensorForm) -> int:
        """Any number of elements."""
        return 1

    def plan(
        self, form: TensorForm, chunks: Callable[[], Iterable[Chunk]], selection: Selection | None
    ) -> dict[str, Any] | Whole:
        """Code lengths of each field that is worth coding, and values of those that never change."""
        partition = self._partitions.get(form.dtype)
        if partition is None or not form.elements:
            return Whole("form")
        counts = field_counts((chunk.patterns for chunk in chunks()), partition.widths)
        codes, constants = {}, {}
        for index in partition.coded:
            if np.count_nonzero(counts[index]) == 1:
                constants[str(index)] = int(np.argmax(counts[index]))
                continue
            lengths = code_lengths(counts[index], max_length=MAX_CODE_LENGTH)
            offsets = 32 * num_lanes(min(form.elements, CHUNK_ELEMENTS)) * -(-form.elements // CHUNK_ELEMENTS)
            cost = num_bits(counts[index], lengths) + offsets + 8 * len(lengths)
            if cost <= (1 - _LEAST_SAVING) * form.elements * partition.widths[index]:
                codes[str(index)] = bytes(lengths.tolist()).hex()
        if not codes and not constants:
            return Whole("gain")
        return {"widths": list(partition.widths), "code_lengths": codes, "constants": constants}

    def check(self, coding: dict[str, Any], form: TensorForm) -> None:
        """Widths, codes and constants that fit each other and the dtype.

        Raises:
            CodecError: otherwise.
        """
        _read_coding(coding, form.pattern_dtype)

    def code_tables(self, coding: dict[str, Any], form: TensorForm) -> dict[str, dict[int, int]]:
        """Code lengths of the symbols that occur.

        Raises:
            CodecError: a plan that cannot be.
        """
        codes = _read_coding(coding, form.pattern_dtype).codes
        tables = {f"field{index}": np.asarray(code.lengths).tolist() for index, code in codes.items()}
        return {key: {symbol: bits for symbol, bits in enumerate(lengths) if bits} for key, lengths in tables.items()}

    def encode(self, coding: dict[str, Any], form: TensorForm, chunk: Chunk) -> dict[str, np.ndarray]:
        """A section for each field or plane; a coded one begins with the word count of each lane (uint16)."""
        widths, codes, constants = _read_coding(coding, chunk.patterns.dtype)
        patterns, sections = jnp.asarray(chunk.patterns), {}
        for index, code in codes.items():
            streams = encode(field(patterns, widths, index), code)
            word_counts = np.asarray(streams.word_counts)
            words = np.asarray(streams.words)[: int(word_counts.sum())]
            sections[f"field{index}"] = np.concatenate([word_counts.astype("<u2").view("u1"), words.view("u1")])
        for plane in planes_of(widths, {*codes, *constants}):
            sections[plane.role] = np.asarray(packed_plane(patterns, widths, plane))
        return sections

    def decode(self, coding: dict[str, Any], form: TensorForm, count: int, sections: dict[str, bytes]) -> np.ndarray:
        """The patterns; bfloat16 with coded exponents alone in one pass.

        Raises:
            CodecError: the sections do not fit.
        """
        widths, codes, constants = _read_coding(coding, form.pattern_dtype)
        planes = planes_of(widths, {*codes, *constants})
        if widths == _BFLOAT16 and tuple(codes) == (1,) and not constants:
            return _decode_bfloat16(codes[1], count, sections)
        # Everything is measured before any of it is decoded, so that a wrong count costs no memory.
        stored = {plane.role: take(sections, plane.role, *plane_form(plane, count)) for plane in planes}
        streams = {index: _streams(sections, index, count) for index in codes}
        values: dict[int, jax.Array] = {}
        for index, code in codes.items():
            values[index] = _checked(decode(streams[index], entries(code), num_symbols=count))
        for index, symbol in constants.items():
            values[index] = jnp.full(count, symbol, jnp.uint16)
        packed = {role: jnp.asarray(content) for role, content in stored.items()}
        return np.asarray(merge_fields(values, packed, widths, tuple(planes), count))


class _Coding(NamedTuple):
    """A plan, checked: widths, codes of the coded fields, values of the constant ones."""

    widths: tuple[int, ...]
    codes: dict[int, HuffmanCode]
    constants: dict[int, int]


def _read_coding(coding: dict[str, Any], dtype: np.dtype) -> _Coding:
    """A plan that may come from a damaged file."""
    try:
        widths = tuple(coding["widths"])
        fields.parse_widths("-".join(map(str, widths)))
        if sum(widths) != dtype.itemsize * 8:
            raise ValueError(f"widths {widths} do not make up {dtype}")
        codes = {}
        for key, text in sorted(coding["code_lengths"].items()):
            lengths = np.frombuffer(bytes.fromhex(text), np.uint8)
            if lengths.size != 1 << widths[int(key)] or not lengths.any():
                raise ValueError(f"{lengths.size} code lengths for field {key}")
            codes[int(key)] = code_of_lengths(lengths, max_length=MAX_CODE_LENGTH)
        constants = {int(key): symbol for key, symbol in coding["constants"].items()}
        if not {*codes, *constants} <= set(range(len(widths))):
            raise ValueError("it names a field that is not there")
        for index, symbol in constants.items():
            if index in codes or type(symbol) is not int or not 0 <= symbol < 1 << min(16, widths[index]):
                raise ValueError(f"field {index} cannot be {symbol!r} throughout")
        widest = [plane.width for plane in planes_of(widths, {*codes, *constants})]
        # Something must be stored of every element, or a few bytes could claim any number of them.
        if max(widest, default=0) > 16 or not (widest or codes):
            raise ValueError("no plane, or one of more than 16 bits")
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise CodecError(f"the coding of the fields cannot be read ({error})") from error
    return _Coding(widths, codes, constants)


def _decode_bfloat16(code: HuffmanCode, count: int, sections: dict[str, bytes]) -> np.ndarray:
    """Sign and mantissa are the one plane; pairs of elements are one word of the result."""
    beside = take(sections, "plane0", np.uint8, count)
    streams = _streams(sections, 1, count)
    lanes = streams.word_counts.shape[0]
    steps = num_steps(count, lanes)
    if steps * lanes * 2 != count:
        beside = np.concatenate([beside, np.zeros(steps * lanes * 2 - count, np.uint8)])
    decoded = decode_bfloat16(streams, entries(code, shift=7), jnp.asarray(beside.view("<u2").reshape(steps, lanes)))
    return np.asarray(_checked(decoded)).reshape(-1).view("<u2")[:count]


def _checked(decoded: Any) -> jax.Array:
    if not bool(decoded.complete):
        raise CodecError("a Huffman stream does not end where it should")
    return decoded.pairs


def _streams(sections: dict[str, bytes], index: int, count: int) -> HuffmanStreams:
    """The streams of a field, as many lanes as this count has, long enough for a bit per element."""
    content = take(sections, f"field{index}", np.uint8)
    lanes = num_lanes(count)
    word_counts = content[: 2 * lanes]
    if word_counts.size != 2 * lanes or (content.size - 2 * lanes) % 4:
        raise CodecError(f"field {index} has {content.size} bytes, too few for {lanes} lanes or no whole words")
    counts = word_counts.copy().view("<u2").astype(np.uint32)
    words = content[2 * lanes :].copy().view("<u4")
    if int(counts.sum()) != words.size or words.size * 32 < count:
        raise CodecError(f"field {index} has {words.size} words; its lanes have {int(counts.sum())}")
    padded = np.zeros(padded_length(words.size + 1), np.uint32)
    padded[: words.size] = words
    return HuffmanStreams(jnp.asarray(padded), jnp.asarray(counts))


def partitions(table: dict[str, tuple[str, tuple[int, ...]]]) -> dict[str, Partition]:
    """Partitions from text: {"BF16": ("1-8-7", (1,))}; the dtypes must be known ones."""
    assert set(table) <= set(PATTERN_DTYPES)
    return {dtype: Partition(fields.parse_widths(text), coded) for dtype, (text, coded) in table.items()}
