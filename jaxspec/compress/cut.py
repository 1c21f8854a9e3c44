"""Mantissa truncation with a fractional number of cut bits."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, UInt16

from jaxspec.compress.blending import Blend, blend
from jaxspec.formats.patterns import BFLOAT16, NumberFormat, from_bits
from jaxspec.formats.truncation import high_part


def blend_cuts(
    cut_bits: Float[Array, "*b"], temperature: Float[Array, ""] | float, number_format: NumberFormat = BFLOAT16
) -> Blend:
    """`blend` of numbers of cut mantissa bits, 0 to as many as the format has."""
    return blend(cut_bits, temperature, least=0, most=number_format.mantissa_bits)


def soft_truncate(
    bits: UInt16[Array, "*b"], mix: Blend, dtype=jnp.float32, number_format: NumberFormat = BFLOAT16
) -> Float[Array, "*mixed"]:
    """Blend of the two truncations of stored patterns; `mix` broadcasts against them."""
    low = from_bits(high_part(bits, mix.low), number_format).astype(dtype)
    high = from_bits(high_part(bits, mix.low + 1), number_format).astype(dtype)
    return low + mix.weight * (high - low)
