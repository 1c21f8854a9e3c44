"""Sections of a chunk of whole rows that a bitmap and a number of cut bits divide: written from patterns, and read back.

See `jaxspec.formats.container.cassandra_codec` for what is in which section.
"""

from __future__ import annotations

import reprlib
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.formats import bit_packing, mx_truncated, unary
from jaxspec.formats.container.codec import MASK_ROLE, CodecError, take
from jaxspec.formats.container.tensors import TensorForm, padded_length
from jaxspec.formats.patterns import BFLOAT16, FLOAT16, NumberFormat, from_bits
from jaxspec.formats.unary_decode import decode_lanes
from jaxspec.settings.shared_exponents import SharedExponents

__all__ = [
    "FORMATS",
    "ChunkShape",
    "SharedBlocks",
    "exponents_of",
    "from_shared",
    "packed",
    "ranking",
    "read_unary",
    "to_shared",
    "unpacked",
    "with_exponent",
    "without_exponent",
    "write_unary",
]

#: Formats that can be divided, by safetensors' names.
FORMATS: dict[str, NumberFormat] = {"BF16": BFLOAT16, "F16": FLOAT16}


class ChunkShape:
    """What a plan that may come from a damaged file says about a chunk, checked."""

    def __init__(self, coding: dict[str, Any], form: TensorForm, count: int, shared: SharedExponents | None):
        per_row, cut = coding.get("kept_per_row"), coding.get("cut_bits")
        number_format = FORMATS.get(form.dtype)
        if number_format is None or (shared and number_format != BFLOAT16) or len(form.shape) != 2:
            raise CodecError(f"a tensor of {form.dtype} and shape {form.shape} cannot be coded so")
        self.width = number_format.mantissa_bits if shared is None else shared.mantissa_bits
        if shared is not None and coding.get("mantissa_bits") != self.width:
            said = reprlib.repr(coding.get("mantissa_bits"))
            raise CodecError(
                f"its elements have {said} mantissa bits, not {self.width} in blocks of whole rows: pack it anew"
            )
        if not (type(per_row) is int and 0 <= per_row <= form.columns and type(cut) is int and 0 <= cut <= self.width):
            raise CodecError(f"{reprlib.repr(per_row)} kept values per row and {reprlib.repr(cut)} cut bits cannot be")
        if form.columns == 0 or count % form.columns:
            raise CodecError(f"a chunk of {count} values has no whole rows of {form.columns}")
        self.coding, self.count, self.cut, self.number_format = coding, count, cut, number_format
        self.rows, self.per_row = count // form.columns, per_row
        self.kept = self.rows * per_row
        self.blocks = -(-form.columns // mx_truncated.BLOCK_SIZE)
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


def ranking(counts: np.ndarray) -> str:
    """Exponents that occur, most frequent first, as hexadecimal digits."""
    order = np.argsort(-counts, kind="stable").astype(np.uint8)
    return order[: int((counts > 0).sum())].tobytes().hex()


def exponents_of(patterns: np.ndarray, number_format: NumberFormat) -> np.ndarray:
    """Exponent fields of patterns."""
    return (patterns >> number_format.mantissa_bits) & ((1 << number_format.exponent_bits) - 1)


def without_exponent(patterns: np.ndarray, number_format: NumberFormat) -> np.ndarray:
    """Sign and mantissa side by side."""
    width = number_format.mantissa_bits
    return ((patterns >> (number_format.total_bits - 1)) << width) | (patterns & ((1 << width) - 1))


def with_exponent(elements: np.ndarray, exponents: np.ndarray, number_format: NumberFormat) -> np.ndarray:
    """Patterns from sign and mantissa side by side and exponents: the inverse of `without_exponent`."""
    width = number_format.mantissa_bits
    sign = (elements >> width) << (number_format.total_bits - 1)
    return sign | (exponents.astype(np.uint16) << width) | (elements & ((1 << width) - 1))


@partial(jax.jit, static_argnames="width")
def _pack(values: jax.Array, width: int) -> jax.Array:
    return bit_packing.pack(values, width=width)


@partial(jax.jit, static_argnames=("width", "count"))
def _unpack(words: jax.Array, width: int, count: int) -> jax.Array:
    return bit_packing.unpack(words, width=width, count=count)


def packed(values: np.ndarray, width: int) -> np.ndarray:
    """The low `width` bits of 16-bit numbers; nothing for a width of 0."""
    return np.asarray(_pack(jnp.asarray(values), width)) if width else np.zeros(0, np.uint32)


def unpacked(sections: dict[str, bytes], role: str, count: int, width: int) -> np.ndarray:
    """Inverse of `packed`; zeros for a width of 0."""
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


_share = jax.jit(mx_truncated.encode, static_argnames=("mantissa_bits", "rounding"))
_unshare = jax.jit(mx_truncated.decode)
_encoded_bits = jax.jit(unary.encoded_bits)
_encode_unary = jax.jit(unary.encode, static_argnames="capacity_bytes")
_decode_unary = jax.jit(decode_lanes, static_argnames=("num_symbols", "num_lanes"))


def write_unary(exponents: np.ndarray, codebook: str) -> np.ndarray:
    """Bytes of the exponents' unary codewords; the codebook as `ranking` spells it."""
    symbols, code = jnp.asarray(exponents.astype(np.uint8)), _code(np.frombuffer(bytes.fromhex(codebook), np.uint8))
    size = -(-int(_encoded_bits(symbols, code)) // 8)
    return np.asarray(_encode_unary(symbols, code, capacity_bytes=padded_length(size)).data)[:size]


def read_unary(sections: dict[str, bytes], role: str, count: int, ranked: np.ndarray) -> np.ndarray:
    """Exponents of a section of unary codewords.

    Args:
        ranked: exponents by rank.
    Raises:
        CodecError: another number of codewords than `count`, or one that the codebook lacks.
    """
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


class SharedBlocks(NamedTuple):
    """Rows in blocks of a shared exponent.

    Attributes:
        scale: of all blocks, row after row.
        elements: of all values, sign and mantissa side by side.
    """

    scale: np.ndarray
    elements: np.ndarray


def to_shared(rows: np.ndarray, form: SharedExponents) -> SharedBlocks:
    """Blocks of bfloat16 patterns."""
    values = from_bits(jnp.asarray(rows), BFLOAT16)
    found = _share(values, mantissa_bits=form.mantissa_bits, rounding=form.rounding)
    elements = np.asarray(found.elements).reshape(len(rows), -1)[:, : rows.shape[1]]
    return SharedBlocks(np.asarray(found.exponent).reshape(-1), elements.reshape(-1))


def from_shared(elements: np.ndarray, sections: dict[str, bytes], shape: ChunkShape) -> np.ndarray:
    """Patterns of all values from their elements and the scales of a chunk."""
    scale = take(sections, "scale", np.uint8, shape.rows * shape.blocks).reshape(shape.rows, shape.blocks)
    padded = np.zeros((shape.rows, shape.blocks * mx_truncated.BLOCK_SIZE), np.uint16)
    columns = shape.count // shape.rows
    padded[:, :columns] = elements.reshape(shape.rows, columns)
    tensor = mx_truncated.SharedExponentTensor(
        exponent=jnp.asarray(scale),
        elements=jnp.asarray(padded.reshape(*scale.shape, mx_truncated.BLOCK_SIZE)),
        mantissa_bits=shape.width,
        columns=columns,
    )
    return np.asarray(_unshare(tensor)).reshape(-1).view(np.uint16)
