"""Bitmap of unstructured pruning: one bit per value, and the values that are kept, back to back.

A decoder puts a kept value back by the number of ones before its bit (prefix population count). Leading axes are rows, each
with a bitmap of its own; a tensor flattened by `reshape(-1)` is one row. Values may be of any type; 16-bit floats that must
survive bit for bit are handed over as uint16 patterns, since XLA may move bfloat16 by way of float32, which quiets NaNs.

Source: Cassandra, IV-B (unstructured value pruning) and V-A (bitmap-based de-sparsification).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32, Shaped, UInt8

__all__ = [
    "SparseValues",
    "cheapest_index_bits",
    "desparsify",
    "expected_bits",
    "num_bits",
    "pack",
    "sparsify",
    "unpack",
]


class SparseValues(NamedTuple):
    """Kept values of each row.

    Attributes:
        values: kept values in order, zero behind the last.
        num_kept: how many the mask keeps. More than `values` has room for means that the last ones are lost.
    """

    values: Shaped[Array, "*b capacity"]
    num_kept: Int32[Array, "*b"]


def pack(mask: Bool[Array, "*b n"]) -> UInt8[Array, "*b bytes"]:
    """Bitmap of each row: the first value's bit is the most significant of the first byte, unused bits are zero."""
    return jnp.packbits(mask, axis=-1)


def unpack(packed: UInt8[Array, "*b bytes"], *, length: int) -> Bool[Array, "*b n"]:
    """Inverse of `pack` for rows of `length` values.

    Raises:
        ValueError: the rows do not have the ceil(length / 8) bytes of such a bitmap.
    """
    if length < 0 or packed.shape[-1] != -(-length // 8):
        raise ValueError(
            f"a bitmap of {length} values has {-(-length // 8)} bytes per row, this one has {packed.shape[-1]}; "
            "give the length that was packed"
        )
    if packed.size == 0:
        return jnp.zeros((*packed.shape[:-1], length), bool)
    return jnp.unpackbits(packed, axis=-1, count=length).astype(bool)


def sparsify(values: Shaped[Array, "*b n"], mask: Bool[Array, "*b n"], *, capacity: int) -> SparseValues:
    """Kept values of each row in order.

    Linear in the values: the gradient reaches kept values only.

    Args:
        capacity: static; kept values to reserve per row. What does not fit is dropped: see `num_kept`.
    Raises:
        ValueError: shapes differ, or capacity is negative.
    """
    if values.shape != mask.shape:
        raise ValueError(f"values {values.shape} and mask {mask.shape} must have one shape")
    if capacity < 0:
        raise ValueError(f"capacity is {capacity}, it must not be negative")
    shape = mask.shape
    target = jnp.where(mask, _place(mask), capacity)

    def one_row(row, row_target):
        return jnp.zeros(capacity, row.dtype).at[row_target].set(row, mode="drop")

    flat = (math.prod(shape[:-1]), shape[-1])
    rows = jax.vmap(one_row)(values.reshape(flat), target.reshape(flat))
    return SparseValues(values=rows.reshape(*shape[:-1], capacity), num_kept=jnp.sum(mask, axis=-1, dtype=jnp.int32))


def desparsify(
    kept: Shaped[Array, "*b capacity"], mask: Bool[Array, "*b n"], *, fill: Shaped[Array, ""] | float = 0
) -> Shaped[Array, "*b n"]:
    """Put kept values back to where their bits are, as the prefix population count of the bitmap says.

    Inverse of `sparsify` on the kept values, and linear in them.

    Args:
        kept: "*b capacity"; kept values of each row in order. A bit whose value is not there (too small a capacity) is filled.
        fill: what stands at pruned places.
    Raises:
        ValueError: the leading axes differ.
    """
    if kept.shape[:-1] != mask.shape[:-1]:
        raise ValueError(f"kept values {kept.shape} and mask {mask.shape} must have the same leading axes")
    place = jnp.where(mask, _place(mask), kept.shape[-1])
    # One more value, the fill, for everything that is not there.
    filled = jnp.concatenate([kept, jnp.full((*kept.shape[:-1], 1), fill, kept.dtype)], axis=-1)
    return jnp.take_along_axis(filled, jnp.minimum(place, kept.shape[-1]), axis=-1)


def _place(mask: Bool[Array, "*b n"]) -> Int32[Array, "*b n"]:
    """Ones before each bit of the row."""
    _check_length(mask.shape[-1])
    ones = mask.astype(jnp.int32)
    return jnp.cumsum(ones, axis=-1) - ones


def num_bits(shape: Sequence[int], *, block_size: int | None = None, offset_bits: int | None = None) -> int:
    """Bits of the bitmap of a tensor, rows padded to bytes, with an offset for each block if blocks are to be entered.

    Args:
        shape: the mask's; its last axis is the row.
        block_size: values per block that has an offset; None for a bitmap without offsets.
        offset_bits: width of an offset; None for the fewest bits that count up to the row's length.
    Raises:
        ValueError: block_size not positive, offset_bits negative, or given without a block_size.
    """
    *lead, length = shape
    bits = 8 * -(-length // 8)
    if block_size is not None:
        _check_block(block_size)
        bits += -(-length // block_size) * _offset_bits(offset_bits, length)
    elif offset_bits is not None:
        raise ValueError("offset_bits is given without block_size, which says how many offsets there are")
    return math.prod(lead) * bits


def expected_bits(
    prune_ratio: Float[Array, "*b"],
    kept_bits: Float[Array, "*b"] | float,
    *,
    block_size: int | None = None,
    offset_bits: int = 32,
) -> Float[Array, "*b"]:
    """Mean bits per stored value of a bitmap and what it keeps: 1 + (1 − prune_ratio) · kept_bits + offset_bits / block_size.

    Linear in the ratio and in the bits, no kinks. The bitmap is always there, also where nothing is pruned; the padding of
    rows to bytes is left out.

    Args:
        prune_ratio: "*b", in [0, 1]; share of values that are pruned.
        kept_bits: "*b"; mean bits of a kept value.
        block_size: static; values per block that has an offset, None for no offsets.
        offset_bits: static; width of an offset.
    """
    prune_ratio = jnp.asarray(prune_ratio)
    index = 1.0
    if block_size is not None:
        _check_block(block_size)
        index += _offset_bits(offset_bits, 0) / block_size
    return index + (1 - prune_ratio) * kept_bits


@jax.custom_jvp
def cheapest_index_bits(density: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """Fewest bits per value that any index of independently kept values can take: the entropy of one bit of the bitmap.

    A bitmap takes 1 bit, which is this bound at density ½ alone; the gap is what a better index could save.

    Args:
        density: "*b", in [0, 1]; share of values that are kept.
    Returns:
        "*b", in [0, 1]; 0 at both ends. The gradient log2((1 − density) / density) is +inf at 0 and −inf at 1, its limits.
    """
    density = jnp.asarray(density)
    # xlogy and xlog1py are 0 at the ends.
    nats = jax.scipy.special.xlogy(density, density) + jax.scipy.special.xlog1py(1 - density, -density)
    # The sum is never positive; its magnitude rather than its negative, which would be −0 at the ends.
    return jnp.abs(nats) / math.log(2)


@cheapest_index_bits.defjvp
def _cheapest_index_bits_jvp(primals, tangents):
    # Term by term, the derivative at the ends would be 0/0.
    (density,), (tangent,) = primals, tangents
    density = jnp.asarray(density)
    slope = (jnp.log1p(-density) - jnp.log(density)) / math.log(2)
    return cheapest_index_bits(density), slope * tangent


def _check_length(length: int) -> None:
    if length >= 1 << 31:
        raise ValueError(
            f"rows of {length} values came; their ones are counted in int32, so cut rows below 2^31 values"
        )


def _check_block(block_size: int) -> None:
    if block_size < 1:
        raise ValueError(f"block_size is {block_size}, it must be at least 1")


def _offset_bits(offset_bits: int | None, length: int) -> int:
    if offset_bits is None:
        return length.bit_length()
    if offset_bits < 0:
        raise ValueError(f"offset_bits is {offset_bits}, it must not be negative")
    return offset_bits
