"""Matrices in two parts: what a draft reads (bitmap, kept values, high mantissa bits) and what only the target reads.

Exponents of kept values are unary codewords (Cassandra-1) or shared by blocks (Cassandra-2, which alters the target). Sections
of a chunk of whole rows, in bits per kept value unless said:

    draft   bitmap (1 per value, absent if nothing is pruned), sign (1), exponent (unary) or scale (8 per block), high
    target  low (the cut bits), pruned (16 per pruned value), or pruned_exponent (unary) and pruned_rest

Source: Cassandra, IV-A and IV-B; pruned values "without any further transformation" (V-A), or coded as a named option.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.formats import bit_packing, mx_truncated, unary
from jaxspec.formats.container.codec import MASK_ROLE, Chunk, CodecError, Part, Selection, occurrences, take
from jaxspec.formats.container.tensors import TensorForm, Whole, padded_length
from jaxspec.formats.patterns import BFLOAT16, FLOAT16, NumberFormat, from_bits
from jaxspec.formats.unary_decode import decode_lanes

__all__ = ["CassandraCodec"]

_FORMATS: dict[str, NumberFormat] = {"BF16": BFLOAT16, "F16": FLOAT16}

_TARGET_ROLES = {"low", "pruned", "pruned_exponent", "pruned_rest"}


class CassandraCodec:
    """Divides two-dimensional tensors of 16-bit floating point by a bitmap and a number of cut bits."""

    def __init__(self, name: str):
        """Args: name: cassandra1, cassandra1-coded or cassandra2."""
        self.name = name
        self.lossless = name != "cassandra2"
        self._pruned_coded = name == "cassandra1-coded"

    def unit(self, form: TensorForm) -> int:
        """A row."""
        return max(1, form.columns)

    def part(self, role: str) -> Part:
        """By role: see the module."""
        return "target" if role in _TARGET_ROLES else "draft"

    def plan(
        self, form: TensorForm, chunks: Callable[[], Iterable[Chunk]], selection: Selection | None
    ) -> dict[str, Any] | Whole:
        """Codebooks of the exponents; left as they are: tensors that are not selected or of another kind."""
        number_format = _FORMATS.get(form.dtype)
        if number_format is None or len(form.shape) != 2 or not form.elements:
            return Whole("form")
        if not self.lossless and number_format != BFLOAT16:
            return Whole("form")
        if selection is None:
            return Whole("asked")
        coding: dict[str, Any] = {"kept_per_row": selection.kept_per_row, "cut_bits": selection.cut_bits}
        if not self.lossless:
            return coding
        counts = np.zeros((2, unary.NUM_SYMBOLS), np.int64)
        for chunk in chunks():
            both = _exponents(chunk.patterns, number_format) | (_mask(chunk).astype(np.uint16) << 8)
            counts += occurrences(both, counts.size).reshape(counts.shape)
        coding["codebook"] = _ranking(counts[1])
        if self._pruned_coded:
            coding["pruned_codebook"] = _ranking(counts[0])
        return coding

    def check(self, coding: dict[str, Any], form: TensorForm) -> None:
        """Numbers in range, codebooks that can be read.

        Raises:
            CodecError: otherwise.
        """
        self.code_tables(coding, form)

    def code_tables(self, coding: dict[str, Any], form: TensorForm) -> dict[str, dict[int, int]]:
        """Unary codewords: a bit per rank and one more.

        Raises:
            CodecError: a plan that cannot be.
        """
        shape = _Shape(coding, form, form.elements, self.lossless)
        keys = ("codebook",) if self.lossless else ()
        keys += ("pruned_codebook",) if self._pruned_coded else ()
        return {key: {int(s): rank + 1 for rank, s in enumerate(shape.codebook(key))} for key in keys}

    def encode(self, coding: dict[str, Any], form: TensorForm, chunk: Chunk) -> dict[str, np.ndarray]:
        """Sections of some rows."""
        number_format, mask = _FORMATS[form.dtype], _mask(chunk)
        kept, pruned = chunk.patterns[mask], chunk.patterns[~mask]
        sections: dict[str, np.ndarray] = {}
        if coding["kept_per_row"] < form.columns:
            sections[MASK_ROLE] = np.packbits(mask)
        if self.lossless:
            sections["exponent"] = _write_unary(_exponents(kept, number_format), coding["codebook"])
            elements, width = _without_exponent(kept, number_format), number_format.mantissa_bits
        else:
            rows = kept.reshape(mask.size // form.columns, coding["kept_per_row"])
            shared = _share(from_bits(jnp.asarray(rows), BFLOAT16))
            sections["scale"] = np.asarray(shared.exponent).reshape(-1)
            elements, width = np.asarray(shared.elements).reshape(-1), shared.mantissa_bits
        cut = coding["cut_bits"]
        sections["sign"] = _packed(elements >> width, 1)
        sections["high"] = _packed(elements >> cut, width - cut)
        sections["low"] = _packed(elements, cut)
        if self._pruned_coded:
            codebook = coding["pruned_codebook"]
            sections["pruned_exponent"] = _write_unary(_exponents(pruned, number_format), codebook)
            sections["pruned_rest"] = _packed(_without_exponent(pruned, number_format), number_format.mantissa_bits + 1)
        else:
            sections["pruned"] = pruned
        return {role: content for role, content in sections.items() if content.size}

    def draft(self, coding: dict[str, Any], form: TensorForm, count: int, sections: dict[str, bytes]) -> np.ndarray:
        """Kept values with their high mantissa bits, zeros elsewhere.

        Raises:
            CodecError: the sections do not fit.
        """
        shape = _Shape(coding, form, count, self.lossless)
        mask = shape.mask(sections)
        patterns = np.zeros(count, np.uint16)
        patterns[mask] = self._kept(shape, sections, _no_low_bits(shape))
        return patterns

    def decode(self, coding: dict[str, Any], form: TensorForm, count: int, sections: dict[str, bytes]) -> np.ndarray:
        """The stored patterns.

        Raises:
            CodecError: the sections do not fit.
        """
        shape = _Shape(coding, form, count, self.lossless)
        mask = shape.mask(sections)
        patterns = np.empty(count, np.uint16)
        patterns[mask] = self._kept(shape, sections, _unpacked(sections, "low", shape.elements, shape.cut))
        patterns[~mask] = self._pruned(shape, sections)
        return patterns

    def _kept(self, shape: _Shape, sections: dict[str, bytes], low: np.ndarray) -> np.ndarray:
        """Patterns of the kept values; `low` are their cut bits, or zeros."""
        high = _unpacked(sections, "high", shape.elements, shape.width - shape.cut)
        sign = _unpacked(sections, "sign", shape.elements, 1)
        elements = (sign << shape.width) | (high << shape.cut) | low
        if self.lossless:
            exponents = _read_unary(sections, "exponent", shape.kept, shape.codebook("codebook"))
            return _with_exponent(elements, exponents, shape.number_format)
        # Like every empty section, the scales of a draft that keeps nothing are left out.
        blocks = shape.elements // mx_truncated.BLOCK_SIZE
        scale = take(sections, "scale", np.uint8, blocks) if blocks else np.zeros(0, np.uint8)
        return _from_shared(elements, scale, shape)

    def _pruned(self, shape: _Shape, sections: dict[str, bytes]) -> np.ndarray:
        number = shape.count - shape.kept
        if not self._pruned_coded:
            return take(sections, "pruned", "<u2", number) if number else np.zeros(0, np.uint16)
        rest = _unpacked(sections, "pruned_rest", number, shape.number_format.mantissa_bits + 1)
        exponents = _read_unary(sections, "pruned_exponent", number, shape.codebook("pruned_codebook"))
        return _with_exponent(rest, exponents, shape.number_format)


class _Shape:
    """What a plan that may come from a damaged file says about a chunk, checked."""

    def __init__(self, coding: dict[str, Any], form: TensorForm, count: int, lossless: bool):
        per_row, cut = coding.get("kept_per_row"), coding.get("cut_bits")
        number_format = _FORMATS.get(form.dtype)
        if number_format is None or (not lossless and number_format != BFLOAT16) or len(form.shape) != 2:
            raise CodecError(f"a tensor of {form.dtype} and shape {form.shape} cannot be coded so")
        self.width = number_format.mantissa_bits if lossless else mx_truncated.MANTISSA_BITS
        if not (type(per_row) is int and 0 <= per_row <= form.columns and type(cut) is int and 0 <= cut <= self.width):
            raise CodecError(f"{reprlib.repr(per_row)} kept values per row and {reprlib.repr(cut)} cut bits cannot be")
        if form.columns == 0 or count % form.columns:
            raise CodecError(f"a chunk of {count} values has no whole rows of {form.columns}")
        self.coding, self.count, self.cut, self.number_format = coding, count, cut, number_format
        self.rows, self.per_row = count // form.columns, per_row
        self.kept = self.rows * per_row
        padding = -per_row % mx_truncated.BLOCK_SIZE
        self.elements = self.kept if lossless else self.rows * (per_row + padding)
        self._columns = form.columns

    def mask(self, sections: dict[str, bytes]) -> np.ndarray:
        """The bitmap, with as many ones in each row as the plan says."""
        if self.per_row == self._columns:
            return np.ones(self.count, bool)
        mask = np.unpackbits(take(sections, MASK_ROLE, np.uint8, -(-self.count // 8)), count=self.count).astype(bool)
        if (mask.reshape(self.rows, -1).sum(axis=1) != self.per_row).any():
            raise CodecError("the bitmap keeps another number of values than the plan says")
        return mask

    def codebook(self, key: str) -> np.ndarray:
        """Exponents by rank."""
        try:
            ranked = np.frombuffer(bytes.fromhex(self.coding[key]), np.uint8)
        except (KeyError, TypeError, ValueError) as error:
            raise CodecError(f"its {key} cannot be read ({error!r})") from error
        if np.unique(ranked).size != ranked.size or (ranked >> self.number_format.exponent_bits).any():
            raise CodecError(f"its {key} lists an exponent twice, or one too large")
        return ranked


def _mask(chunk: Chunk) -> np.ndarray:
    if chunk.kept is None:
        raise ValueError("a chunk came without the mask of kept values; this codec needs one: see pack's keep")
    return chunk.kept


def _ranking(counts: np.ndarray) -> str:
    """Exponents that occur, most frequent first, as hexadecimal digits."""
    order = np.argsort(-counts, kind="stable").astype(np.uint8)
    return order[: int((counts > 0).sum())].tobytes().hex()


def _exponents(patterns: np.ndarray, number_format: NumberFormat) -> np.ndarray:
    return (patterns >> number_format.mantissa_bits) & ((1 << number_format.exponent_bits) - 1)


def _without_exponent(patterns: np.ndarray, number_format: NumberFormat) -> np.ndarray:
    """Sign and mantissa side by side."""
    width = number_format.mantissa_bits
    return ((patterns >> (number_format.total_bits - 1)) << width) | (patterns & ((1 << width) - 1))


def _with_exponent(elements: np.ndarray, exponents: np.ndarray, number_format: NumberFormat) -> np.ndarray:
    width = number_format.mantissa_bits
    sign = (elements >> width) << (number_format.total_bits - 1)
    return sign | (exponents.astype(np.uint16) << width) | (elements & ((1 << width) - 1))


def _no_low_bits(shape: _Shape) -> np.ndarray:
    return np.zeros(shape.elements, np.uint16)


@partial(jax.jit, static_argnames="width")
def _pack(values: jax.Array, width: int) -> jax.Array:
    return bit_packing.pack(values, width=width)


@partial(jax.jit, static_argnames=("width", "count"))
def _unpack(words: jax.Array, width: int, count: int) -> jax.Array:
    return bit_packing.unpack(words, width=width, count=count)


def _packed(values: np.ndarray, width: int) -> np.ndarray:
    """The low `width` bits of 16-bit numbers; nothing for a width of 0."""
    return np.asarray(_pack(jnp.asarray(values), width)) if width else np.zeros(0, np.uint32)


def _unpacked(sections: dict[str, bytes], role: str, count: int, width: int) -> np.ndarray:
    """Inverse of `_packed`; zeros for a width of 0."""
    if not width or not count:
        return np.zeros(count, np.uint16)
    words = take(sections, role, "<u4", bit_packing.num_words(count, width))
    return np.asarray(_unpack(jnp.asarray(words), width, count))


def _code(ranked: np.ndarray) -> unary.Codebook:
    """A codebook from the exponents that occur, by rank."""
    others = np.setdiff1d(np.arange(unary.NUM_SYMBOLS), ranked)
    symbols = np.concatenate([ranked, others]).astype(np.uint8)
    rank_of = np.argsort(symbols).astype(np.uint8)
    return unary.Codebook(jnp.asarray(symbols), jnp.asarray(rank_of), jnp.asarray(ranked.size, jnp.int32))


_share = jax.jit(mx_truncated.encode)
_unshare = jax.jit(mx_truncated.decode)
_encoded_bits = jax.jit(unary.encoded_bits)
_encode_unary = jax.jit(unary.encode, static_argnames="capacity_bytes")
_decode_unary = jax.jit(decode_lanes, static_argnames=("num_symbols", "num_lanes"))


def _write_unary(exponents: np.ndarray, codebook: str) -> np.ndarray:
    symbols, code = jnp.asarray(exponents.astype(np.uint8)), _code(np.frombuffer(bytes.fromhex(codebook), np.uint8))
    size = -(-int(_encoded_bits(symbols, code)) // 8)
    return np.asarray(_encode_unary(symbols, code, capacity_bytes=padded_length(size)).data)[:size]


def _read_unary(sections: dict[str, bytes], role: str, count: int, ranked: np.ndarray) -> np.ndarray:
    if not count:
        return np.zeros(0, np.uint8)
    data = take(sections, role, np.uint8)
    # A codeword has one one; counting them first spares the decoder, which is compiled anew for every count.
    ones = int(np.bitwise_count(data).sum())
    if ones != count or not data[-1]:
        raise CodecError(f"section {role!r} of {data.size} bytes has {ones} codewords, not {count}, or ends in zeros")
    # The stream ends with the last one; its number of bits is not stored.
    num_bits = 8 * data.size - (int(data[-1]) & -int(data[-1])).bit_length() + 1
    padded = np.zeros(padded_length(data.size), np.uint8)
    padded[: data.size] = data
    stream = unary.UnaryStream(jnp.asarray(padded), jnp.asarray(num_bits, jnp.int32))
    found = _decode_unary(stream, _code(ranked), num_symbols=count)
    if not bool(found.complete):
        raise CodecError(f"section {role!r} does not hold {count} codewords of its codebook")
    return np.asarray(found.symbols)


def _from_shared(elements: np.ndarray, scale: np.ndarray, shape: _Shape) -> np.ndarray:
    """Patterns of the kept values of all rows from blocks with shared exponents."""
    blocks = scale.reshape(shape.rows, -1)
    tensor = mx_truncated.SharedExponentTensor(
        exponent=jnp.asarray(blocks),
        elements=jnp.asarray(elements.reshape(*blocks.shape, mx_truncated.BLOCK_SIZE)),
        mantissa_bits=shape.width,
        columns=shape.per_row,
    )
    return np.asarray(_unshare(tensor)).reshape(-1).view(np.uint16)
