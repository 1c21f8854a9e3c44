"""Bit fields of bfloat16 and truncation of its mantissa, exact on all 65,536 patterns."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, BFloat16, Int, UInt8, UInt16

MANTISSA_BITS = 7
EXPONENT_BITS = 8
TOTAL_BITS = 16


class Fields(NamedTuple):
    """Sign (0 or 1), biased exponent and mantissa of bfloat16 values."""

    sign: UInt8[Array, "*b"]
    exponent: UInt8[Array, "*b"]
    mantissa: UInt8[Array, "*b"]


def to_bits(x: BFloat16[Array, "*b"]) -> UInt16[Array, "*b"]:
    """The stored pattern."""
    return jax.lax.bitcast_convert_type(x, jnp.uint16)


def from_bits(bits: UInt16[Array, "*b"]) -> BFloat16[Array, "*b"]:
    """The value of a stored pattern."""
    return jax.lax.bitcast_convert_type(bits, jnp.bfloat16)


def split_fields(x: BFloat16[Array, "*b"]) -> Fields:
    """Sign, exponent and mantissa fields."""
    bits = to_bits(x)
    return Fields(
        (bits >> 15).astype(jnp.uint8), ((bits >> 7) & 0xFF).astype(jnp.uint8), (bits & 0x7F).astype(jnp.uint8)
    )


def merge_fields(fields: Fields) -> BFloat16[Array, "*b"]:
    """Inverse of `split_fields`."""
    sign, exponent, mantissa = (field.astype(jnp.uint16) for field in fields)
    return from_bits((sign << 15) | (exponent << 7) | mantissa)


def high_part(bits: UInt16[Array, "*b"], cut_bits: Int[Array, "*b"] | int) -> UInt16[Array, "*b"]:
    """The pattern with its lowest `cut_bits` bits zeroed: what the draft reads.

    Args:
        cut_bits: 0 to 7, an integer or an integer array that broadcasts against `bits`; it may be traced.
    """
    keep = (jnp.uint16(0xFFFF) << jnp.asarray(cut_bits).astype(jnp.uint16)).astype(jnp.uint16)
    return bits & keep


def low_part(bits: UInt16[Array, "*b"], cut_bits: Int[Array, "*b"] | int) -> UInt16[Array, "*b"]:
    """The cut bits: what only the target reads. `high_part | low_part` is the pattern."""
    return bits ^ high_part(bits, cut_bits)


def truncate(x: BFloat16[Array, "*b"], cut_bits: Int[Array, "*b"] | int) -> BFloat16[Array, "*b"]:
    """The value with its lowest mantissa bits zeroed (Cassandra, IV-B: toward zero, no rounding)."""
    return from_bits(high_part(to_bits(x), cut_bits))
