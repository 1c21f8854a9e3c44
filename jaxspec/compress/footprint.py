"""Bits that a draft and its target read per stored value, with bitmap, sign, coded exponent, codebook and mantissa.

The share of bits that the padding of streams to memory blocks adds is left out: in the architectures that are priced, one
matrix is ten thousand blocks long. Superblock packing has its own model.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, UInt16

from jaxspec.formats.patterns import BFLOAT16
from jaxspec.formats.unary import mean_code_length, weighted_counts

#: How the exponents of pruned values are stored: as they are (Cassandra, V-A: "without any further transformation"), or
#: unary-coded with a codebook of their own.
PrunedExponents = Literal["raw", "coded"]

#: A bitmap is stored once anything is pruned. Its soft presence rises with the ratio over this many temperatures.
_BITMAP_RISE = 0.2


class BitsPerValue(NamedTuple):
    """Mean bits per stored value.

    Attributes:
        draft: speculation data: what one draft step reads.
        target: speculation and verification data: what one verification reads.
    """

    draft: Float[Array, "*b"]
    target: Float[Array, "*b"]


def bits_per_value(
    bits: UInt16[Array, "*b n"],
    kept: Float[Array, "*b n"],
    cut_bits: Float[Array, "*b"],
    bitmap: Float[Array, "*b"],
    pruned_exponents: PrunedExponents = "raw",
) -> BitsPerValue:
    """Footprint of bfloat16 values from the values themselves.

    Args:
        bits: stored patterns.
        kept: weight of each value in the draft: 0 or 1, between for a soft mask.
        cut_bits: mean number of cut mantissa bits.
        bitmap: bits of bitmap per value, 0 to 1.
    Source: Cassandra, IV-B; the 13.9 and 11.85 bits of the 40 %/4-bit point follow with a unary length of 2.85.
    """
    exponent = (bits >> BFLOAT16.mantissa_bits) & 0xFF
    share = jnp.mean(kept, axis=-1)
    code = mean_code_length(weighted_counts(exponent, kept))
    draft = bitmap + share * (1 + code + BFLOAT16.mantissa_bits - cut_bits)
    if pruned_exponents == "raw":
        pruned = jnp.asarray(float(BFLOAT16.total_bits), draft.dtype)
    else:
        pruned = BFLOAT16.total_bits - BFLOAT16.exponent_bits + mean_code_length(weighted_counts(exponent, 1 - kept))
    return BitsPerValue(draft=draft, target=draft + share * cut_bits + (1 - share) * pruned)


def soft_bitmap(prune: Float[Array, "*b"], temperature: Float[Array, ""] | float) -> Float[Array, "*b"]:
    """Bits of bitmap per value: 0 without pruning, 1 with any, a fast rise between.

    Departs from the hard footprint where a ratio is above 0 but prunes less than half a value of a row: nothing is pruned
    there and no bitmap is stored, yet this one tends to 1, so that its slope at 0 holds off ratios that do not pay.
    """
    return -jnp.expm1(-prune / (_BITMAP_RISE * temperature))
