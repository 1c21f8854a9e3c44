"""Shared exponents with truncated mantissas: the lossy form in which Cassandra-2 stores kept values.

A block of bfloat16 values shares its largest exponent field. An element is its sign and `mantissa_bits` bits of mantissa with
the leading one written out, shifted right by how far its own exponent lies below the shared one. The low mantissa bits are
verification data, the rest speculation data: together they are the stored element bit for bit, so that the draft's bits are a
part of the target's. The target of this form is the stored element, not the bfloat16 value it came from.

The decoder works as the paper's: concatenate high and low mantissa bits, count the leading zeros z, shift left by z, subtract
z from the shared exponent, and put the values where the bitmap is set.

Choices where the paper is silent:

* 32 values per block, as in the MX specification, taken from the kept values of one row (last axis) after pruning.
* 1 sign + 8 mantissa bits: an element with the block's largest exponent keeps its leading one and all 7 stored bits, so it
  is exact, and an element d exponents below loses its d lowest bits.
* Bits that fall off are dropped (toward zero), so that cutting more gives what encoding with fewer bits would have given. To
  nearest, ties to even, is an option; it saturates at the largest mantissa instead of raising the shared exponent.
* Subnormal values have exponent 1 and no leading one; a block of subnormal values and zeros is exact. Signed zeros stay, also
  those that small values become.
* An infinity or a NaN has exponent 255 and passes like any value, exactly with 8 bits or more; the finite values of its block
  lose what they would lose beside a value of 2^128. A truncated NaN may become an infinity, as in `truncation`. Nothing can be
  raised where values are traced.

Source: Cassandra, IV-B, Fig. 5(a), and V-A, "Decoder #N".
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, BFloat16, Bool, Float, Int, UInt8, UInt16

from jaxspec.formats.patterns import BFLOAT16, BitsRead, format_of, from_bits, high_part, to_bits
from jaxspec.settings.knobs import Rounding, SharedExponents

__all__ = [
    "MXParts",
    "SharedExponentTensor",
    "decode",
    "encode",
    "expected_bits",
    "join",
    "nested_bits",
    "num_bits",
    "round_to",
    "split",
]

#: Values that share an exponent.
BLOCK_SIZE = 32

#: Leading one and all stored bits of a bfloat16 mantissa.
MANTISSA_BITS = BFLOAT16.mantissa_bits + 1

#: Bits of a shared exponent.
EXPONENT_BITS = BFLOAT16.exponent_bits

#: A sign and 15 bits of mantissa are what an element's 16-bit pattern holds.
_WIDEST_MANTISSA = 15


@struct.dataclass
class SharedExponentTensor:
    """Blocks of a shared exponent and signed mantissas.

    Attributes:
        exponent: largest exponent field of each block (biased by 127).
        elements: sign at bit `mantissa_bits`, mantissa with explicit leading one below; zeros fill the last block.
        mantissa_bits: static.
        columns: static; values of a row.
    """

    exponent: UInt8[Array, "*b block"]
    elements: UInt16[Array, "*b block place"]
    mantissa_bits: int = struct.field(pytree_node=False)
    columns: int = struct.field(pytree_node=False)


class MXParts(NamedTuple):
    """An encoded tensor in two disjoint parts.

    Attributes:
        speculation: what the draft reads: shared exponents, signs and high mantissa bits; `decode` takes it as it stands.
        verification: the cut mantissa bits.
    """

    speculation: SharedExponentTensor
    verification: UInt16[Array, "*b block place"]


def encode(
    x: BFloat16[Array, "*b column"],
    kept: Bool[Array, "*b column"] | None = None,
    *,
    block_size: int = BLOCK_SIZE,
    mantissa_bits: int = MANTISSA_BITS,
    rounding: Rounding = "toward_zero",
) -> SharedExponentTensor:
    """Give blocks of values their largest exponent.

    The error is below 2^(1 - mantissa_bits) of a block's largest magnitude (of 2^-126 where that is subnormal).

    Args:
        kept: the bitmap; None keeps all. The kept values of a row are moved to its front, and zeros stored behind them.
        block_size: static int >= 1.
        mantissa_bits: static, 1 to 15; leading one included.
        rounding: static; what becomes of bits that fall off.
    Raises:
        ValueError: another dtype than bfloat16, no axis to block, or a static value out of range.
    """
    if format_of(x.dtype) != BFLOAT16:
        raise ValueError(f"values of dtype {x.dtype} came; only bfloat16 is stored with shared exponents. Use astype")
    _check(x.shape, block_size, mantissa_bits)
    if rounding not in ("toward_zero", "nearest_even"):
        raise ValueError(f"rounding is {rounding!r}; allowed are 'toward_zero' and 'nearest_even'")
    bits = to_bits(x)
    if kept is not None:
        # A stable sort of the bitmap alone: kept places first, in their order.
        order = jnp.argsort(~kept, axis=-1, stable=True)
        bits = jnp.where(jnp.sort(~kept, axis=-1), jnp.uint16(0), jnp.take_along_axis(bits, order, axis=-1))
    missing = -x.shape[-1] % block_size
    bits = jnp.pad(bits, [(0, 0)] * (x.ndim - 1) + [(0, missing)])
    bits = bits.reshape(*x.shape[:-1], (x.shape[-1] + missing) // block_size, block_size).astype(jnp.uint32)

    field = (bits >> BFLOAT16.mantissa_bits) & 0xFF
    leading_one = (field > 0).astype(jnp.uint32) << BFLOAT16.mantissa_bits
    # 16 bits more than an element can hold of it, so that what falls off can be rounded.
    significand = ((bits & 0x7F) | leading_one) << 16
    shared = jnp.max(field, axis=-1, initial=0)
    distance = jnp.maximum(shared, 1)[..., None] - jnp.maximum(field, 1)
    below = jnp.minimum(distance + (16 + MANTISSA_BITS - mantissa_bits), 31)
    if rounding == "nearest_even":
        significand += (jnp.uint32(1) << (below - 1)) - 1 + ((significand >> below) & 1)
    mantissa = jnp.minimum(significand >> below, (1 << mantissa_bits) - 1)
    sign = bits >> (BFLOAT16.total_bits - 1)
    return SharedExponentTensor(
        exponent=shared.astype(jnp.uint8),
        elements=((sign << mantissa_bits) | mantissa).astype(jnp.uint16),
        mantissa_bits=mantissa_bits,
        columns=x.shape[-1],
    )


def decode(encoded: SharedExponentTensor, kept: Bool[Array, "*b column"] | None = None) -> BFloat16[Array, "*b column"]:
    """The bfloat16 values of stored elements, exact: what encoding rounded is all that is lost.

    Args:
        kept: the bitmap that the values were encoded with; zeros are put where it is False.
    Raises:
        ValueError: a bitmap of another row length.
    """
    width = encoded.mantissa_bits
    mantissa = (encoded.elements & ((1 << width) - 1)).astype(jnp.uint32)
    zeros = jax.lax.clz(mantissa) - (32 - width)
    # The leading one at bit 15, where the significand of bfloat16 is the upper byte; below it is nothing but zeros.
    significand = (mantissa << zeros << (_WIDEST_MANTISSA + 1 - width)) >> 8
    exponent = jnp.maximum(encoded.exponent, 1).astype(jnp.int32)[..., None] - zeros.astype(jnp.int32)
    normal = (exponent.astype(jnp.uint32) << BFLOAT16.mantissa_bits) | (significand & 0x7F)
    subnormal = significand >> jnp.clip(1 - exponent, 0, 31).astype(jnp.uint32)
    magnitude = jnp.where((exponent > 0) & (mantissa > 0), normal, subnormal)
    sign = (encoded.elements >> width).astype(jnp.uint32)
    bits = (magnitude | (sign << (BFLOAT16.total_bits - 1))).astype(jnp.uint16)
    bits = bits.reshape(*bits.shape[:-2], bits.shape[-2] * bits.shape[-1])[..., : encoded.columns]
    if kept is not None:
        if kept.shape[-1] != encoded.columns:
            raise ValueError(
                f"a bitmap of {kept.shape[-1]} columns came with rows of {encoded.columns}; give the one they were encoded with"
            )
        place = jnp.maximum(jnp.cumsum(kept, axis=-1, dtype=jnp.int32) - 1, 0)
        bits = jnp.where(kept, jnp.take_along_axis(bits, place, axis=-1), jnp.uint16(0))
    return from_bits(bits, BFLOAT16)


def round_to(x: BFloat16[Array, "*b column"], form: SharedExponents) -> BFloat16[Array, "*b column"]:
    """The values that stored elements stand for; rounding them once more changes nothing."""
    return decode(encode(x, mantissa_bits=form.mantissa_bits, rounding=form.rounding))


def split(encoded: SharedExponentTensor, cut_bits: Int[Array, "*b"] | int) -> MXParts:
    """Divide stored elements into what the draft reads and what only the target reads.

    Args:
        cut_bits: low mantissa bits that are verification data, 0 to mantissa_bits; an integer or an integer array that
            broadcasts against "*b block place"; it may be traced.
    Raises:
        ValueError: a cut that is known and out of range.
    """
    known = isinstance(cut_bits, (int, np.integer, np.ndarray))
    if known and not np.all((np.asarray(cut_bits) >= 0) & (np.asarray(cut_bits) <= encoded.mantissa_bits)):
        raise ValueError(f"cut_bits is {cut_bits}; 0 to {encoded.mantissa_bits} of the mantissa may be cut")
    high = high_part(encoded.elements, cut_bits)
    return MXParts(speculation=replace(encoded, elements=high), verification=encoded.elements ^ high)


def join(parts: MXParts) -> SharedExponentTensor:
    """The stored elements, bit for bit."""
    return replace(parts.speculation, elements=parts.speculation.elements | parts.verification)


def num_bits(
    kept: Bool[Array, "*b column"],
    cut_bits: Int[Array, "*#b"] | int,
    *,
    block_size: int = BLOCK_SIZE,
    mantissa_bits: int = MANTISSA_BITS,
) -> BitsRead:
    """Bits of each row: whole blocks of its kept values, its pruned values, and a bitmap if any of the row is pruned.

    Args:
        kept: the bitmap.
        cut_bits: 0 to mantissa_bits, broadcast against the rows.
    Returns:
        int32 counts per row.
    Raises:
        ValueError: no axis to block, a static value out of range, or a row whose bits int32 might not count.
    """
    _check(kept.shape, block_size, mantissa_bits)
    columns = kept.shape[-1]
    blocks = -(-columns // block_size)
    most = columns + blocks * (EXPONENT_BITS + block_size * max(1 + mantissa_bits, BFLOAT16.total_bits))
    if most >= 1 << 31:
        raise ValueError(f"rows of {columns} values may take {most} bits; less than 2^31 are counted: split the rows")
    count = jnp.sum(kept, axis=-1, dtype=jnp.int32)
    stored = (count + (block_size - 1)) // block_size * block_size
    bitmap = jnp.where(count < columns, columns, 0)
    draft = bitmap + stored // block_size * EXPONENT_BITS + stored * (1 + mantissa_bits - cut_bits)
    return BitsRead(draft, draft + stored * cut_bits + (columns - count) * BFLOAT16.total_bits)


def expected_bits(
    keep_share: Float[Array, "*b"] | float,
    cut_bits: Float[Array, "*b"] | float,
    *,
    bitmap: Float[Array, "*b"] | float = 1.0,
    block_size: int = BLOCK_SIZE,
    mantissa_bits: int = MANTISSA_BITS,
) -> BitsRead:
    """Mean bits per value of long rows, the filling of a row's last block left out.

    Differentiable in share, cut and bitmap: a product of linear terms, no kinks. A bitmap's presence jumps in the exact size;
    here it is an input.

    Args:
        keep_share: share of values in the draft, 0 to 1.
        cut_bits: mean number of cut bits, 0 to mantissa_bits.
        bitmap: bits of bitmap per value, 0 to 1.
    """
    draft = bitmap + keep_share * (1 + mantissa_bits - cut_bits + EXPONENT_BITS / block_size)
    pruned = (1 - keep_share) * BFLOAT16.total_bits
    return BitsRead(draft, draft + keep_share * cut_bits + pruned)


def nested_bits(
    keep_share: Float[Array, "*b"] | float,
    cut_bits: Float[Array, "*b"] | float,
    *,
    bitmap: Float[Array, "*b"] | float,
    columns: int,
    block_size: int = BLOCK_SIZE,
    mantissa_bits: int = MANTISSA_BITS,
) -> BitsRead:
    """Bits per value where all values of a row are in blocks, kept or pruned: a draft of some elements in a target of all.

    Nothing fills a row's last block of `columns` values (static). Linear in the others, which are those of `expected_bits`.
    """
    shared = EXPONENT_BITS * -(-columns // block_size) / columns
    draft = bitmap + shared + keep_share * (1 + mantissa_bits - cut_bits)
    return BitsRead(draft, bitmap + shared + keep_share * 0 + (1 + mantissa_bits))


def _check(shape: tuple[int, ...], block_size: int, mantissa_bits: int) -> None:
    if not shape:
        raise ValueError("a scalar has no axis to block; give it one with reshape(1)")
    if block_size < 1:
        raise ValueError(f"block_size is {block_size}; a block holds at least one value")
    if not 1 <= mantissa_bits <= _WIDEST_MANTISSA:
        raise ValueError(
            f"mantissa_bits is {mantissa_bits}; an element holds 1 to {_WIDEST_MANTISSA}, leading one included"
        )
