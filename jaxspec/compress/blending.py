"""A fractional number as a blend of its two whole neighbours: bits of a format, experts of a pool."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxspec.formats.patterns import BFLOAT16, NumberFormat


class Blend(NamedTuple):
    """The whole number below, and the weight of the one above."""

    low: Int[Array, "*b"]
    weight: Float[Array, "*b"]

    @property
    def mean(self) -> Float[Array, "*b"]:
        """Mean of the two; tends to the rounded number as the temperature falls."""
        return self.low.astype(self.weight.dtype) + self.weight


def blend(value: Float[Array, "*b"], temperature: Float[Array, ""] | float, *, least: int, most: int) -> Blend:
    """Neighbours of a fractional number in [least, most] and the upper one's weight; static bounds, least < most.

    The weight is sigmoid((fraction − 1/2) / temperature), rescaled to run from exactly 0 to exactly 1: without the rescaling
    the blend would jump at whole numbers. Kinks at whole numbers; the gradient there is the right-hand one, at `most` the left.
    """
    low = jnp.clip(jnp.floor(value), least, most - 1)
    bottom, top = jax.nn.sigmoid(-0.5 / temperature), jax.nn.sigmoid(0.5 / temperature)
    raw = jax.nn.sigmoid((value - low - 0.5) / temperature)
    return Blend(low.astype(jnp.int32), (raw - bottom) / (top - bottom))


# Mantissa truncation with a fractional number of cut bits.


def blend_cuts(
    cut_bits: Float[Array, "*b"], temperature: Float[Array, ""] | float, number_format: NumberFormat = BFLOAT16
) -> Blend:
    """`blend` of numbers of cut mantissa bits, 0 to as many as the format has."""
    return blend(cut_bits, temperature, least=0, most=number_format.mantissa_bits)
