"""Sections of a chunk of whole rows that a bitmap and a number of cut bits divide: written from patterns, and read back.

See `jaxspec.formats.container.cassandra_codec` for what is in which section.
"""

from __future__ import annotations

import reprlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.formats import bit_packing, mx_truncated, unary
from jaxspec.formats.container import host_bits
from jaxspec.formats.container.codec import MASK_ROLE, CodecError, take
from jaxspec.formats.container.tensors import TensorForm
from jaxspec.formats.patterns import BFLOAT16, FLOAT16, NumberFormat, from_bits
from jaxspec.settings.knobs import SharedExponents

__all__ = [
    "FORMATS",
    "ChunkShape",
    "Places",
    "SharedBlocks",
    "exponents_of",
    "from_shared",
    "packed",
    "places_of",
    "ranking",
    "read_unary",
    "to_shared",
    "unary_bits",
    "unpacked",
    "with_exponent",
    "without_exponent",
    "write_unary",
]

#: Formats that can be divided, by safetensors' names.
FORMATS: dict[str, NumberFormat] = {"BF16": BFLOAT16, "F16": FLOAT16}


class Places(NamedTuple):
    """Indices into the values of a chunk; in NumPy they are several times as fast as a mask."""

    kept: np.ndarray | slice
    pruned: np.ndarray | slice


def places_of(mask: np.ndarray) -> Places:
    """Where a mask is True, and where not."""
    return Places(np.flatnonzero(mask), np.flatnonzero(~mask))


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

    def places(self, sections: dict[str, bytes]) -> Places:
        """Where kept and pruned values stand, by the bitmap, which has as many ones in each row as the plan says."""
        if self.per_row == self._columns:
            return Places(slice(None), slice(0, 0))
        mask = np.unpackbits(take(sections, MASK_ROLE, np.uint8, -(-self.count // 8)), count=self.count).view(bool)
        if (np.count_nonzero(mask.reshape(self.rows, -1), axis=1) != self.per_row).any():
            raise CodecError("the bitmap keeps another number of values than the plan says")
        return places_of(mask)

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


def unary_bits(counts: np.ndarray) -> np.ndarray:
    """Bits of the shortest unary codewords of symbols that occur this often, along the last axis; without the codebook."""
    return -np.sort(-counts, axis=-1) @ np.arange(1, counts.shape[-1] + 1)


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


_pack_wide = jax.jit(bit_packing.pack, static_argnames="width")
_unpack_wide = jax.jit(bit_packing.unpack, static_argnames=("width", "count"))


def packed(values: np.ndarray, width: int) -> np.ndarray:
    """The low `width` bits of 16-bit numbers; nothing for a width of 0."""
    if not width:
        return np.zeros(0, np.uint32)
    narrow = width <= host_bits.MOST_WIDTH
    return host_bits.pack(values, width) if narrow else np.asarray(_pack_wide(jnp.asarray(values), width=width))


def unpacked(sections: dict[str, bytes], role: str, count: int, width: int) -> np.ndarray:
    """Inverse of `packed`; zeros for a width of 0."""
    if not width or not count:
        return np.zeros(count, np.uint16)
    words = take(sections, role, "<u4", bit_packing.num_words(count, width))
    if width <= host_bits.MOST_WIDTH:
        return host_bits.unpack(words, width, count)
    return np.asarray(_unpack_wide(jnp.asarray(words), width=width, count=count))


_share = jax.jit(mx_truncated.encode, static_argnames=("mantissa_bits", "rounding"))
_unshare = jax.jit(mx_truncated.decode)


def write_unary(exponents: np.ndarray, codebook: str) -> np.ndarray:
    """Bytes of the exponents' unary codewords; the codebook as `ranking` spells it."""
    ranked = np.frombuffer(bytes.fromhex(codebook), np.uint8)
    lengths = np.zeros(unary.NUM_SYMBOLS, np.uint16)
    lengths[ranked] = np.arange(1, ranked.size + 1)
    return host_bits.write_unary(exponents.astype(np.uint8), lengths)


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
    # A codeword has one one; counting them first spares room for codewords that are not there.
    ones = int(np.bitwise_count(data).sum())
    if ones != count or not data[-1]:
        raise CodecError(f"section {role!r} of {data.size} bytes has {ones} codewords, not {count}, or ends in zeros")
    codes = host_bits.read_unary(data, count)
    if codes.largest >= ranked.size:
        raise CodecError(f"section {role!r} does not hold {count} codewords of its codebook")
    return host_bits.look_up(ranked, codes.ranks)


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
    shared = _share(values, mantissa_bits=form.mantissa_bits, rounding=form.rounding)
    elements = np.asarray(shared.elements).reshape(len(rows), -1)[:, : rows.shape[1]]
    return SharedBlocks(np.asarray(shared.exponent).reshape(-1), elements.reshape(-1))


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
