"""Sums of many small numbers to a large one, in two numbers of single precision: a clock that goes in milliseconds for days.

At 3e5 s a single-precision number has steps of 31 ms, so that adding 8 ms changes nothing. The second number holds what the
first one has rounded away.

Source: Knuth, The Art of Computer Programming 2, sec. 4.2.2, theorem B (the rounding error of a sum is itself a number).
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["EXACT", "CompensatedSum", "compensated_sum", "exact_matmul"]

# Matrix products of float32 numbers that are float32 products on every device.

#: `precision` of products. Without it, GPUs round float32 operands to 10 bits of mantissa and TPUs to 7: logits then differ by
#: a thousandth between steps of one and of several tokens, and decoding with a draft gives other tokens.
EXACT = jax.lax.Precision.HIGHEST

#: `jnp.matmul`, exact.
exact_matmul = functools.partial(jnp.matmul, precision=EXACT)


class CompensatedSum(NamedTuple):
    """A number as an unevaluated sum, "*b"; the second part is below half of the last digit of the first."""

    high: Float[Array, "*b"]
    low: Float[Array, "*b"]

    def plus(self, more: Float[Array, "*b"]) -> CompensatedSum:
        """The sum with one more number, "*b"."""
        total = self.high + more
        counted = total - self.high
        lost = (self.high - (total - counted)) + (more - counted)
        rest = self.low + lost
        high = total + rest
        return CompensatedSum(high, rest - (high - total))

    def since(self, earlier: Float[Array, "*b"]) -> Float[Array, "*b"]:
        """What it exceeds a number by, "*b", to the digits of the difference."""
        return (self.high - earlier) + self.low


def compensated_sum(value: Float[Array, "*b"]) -> CompensatedSum:
    """A number to begin with."""
    return CompensatedSum(value, jnp.zeros_like(value))
