"""Time in which a GPU's memory feeds a product neither operand of which stays in the second-level cache.

    feeding   = reread_cost · (A · n / 256 + W · m / 256) · missed(A) · missed(W) / bandwidth
    missed(x) = r^4 / (1 + r^4),   r = x / (cache / 2)          A, W: bytes of activations, of weights, as they are multiplied

Tiles in flight share their operands. As long as one operand fits into the cache, every wave of tiles finds it there while the
other one passes by, so that memory is read once. If neither fits, tiles' rows and columns come from memory again: a band of 256
rows reads all weights, a band of 256 columns all activations. Half of the cache counts, as if both of its partitions held what
both read. A product waits for the longer of arithmetic and feeding (joined by the fourth power). Feeding rises with m, k, n and
bits, and so the product does.

Source: form and constants chosen on the FP8 tables of aiconfigurator-core 0.12.0 for the B200, where times per FLOP rise by a
third or so wherever both operands exceed about 75 MB, whichever of m, k and n makes them so large.
Departs: this traffic counts as time of the product, not as bytes, so that a step's traffic and energy do not have it.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.compute.gpu_formats import GemmCoefficients
from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.numerics.smoothing import smooth_largest
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = ["feeding_time", "while_fed"]

_BAND = 256.0
_CACHE_SHARE = 0.5
#: Beyond which the fourth power is 1 in single precision, and might overflow.
_MOST_CACHES = 1e3
#: Of the maximum of arithmetic and feeding, as of that of arithmetic and memory.
_TEMPERATURE = 0.25


def feeding_time(
    c: GemmCoefficients, m: Number, k: Number, n: Number, *, weight_bits: Number, bandwidth_bytes_per_s: Leaf
) -> Float[Array, "*b"]:
    """Seconds of reading operands again, as the module's heading has it.

    Args:
        c: leaves "*b"; `reread_cost` 0 is no such time, `cache_bytes` 0 no cache.
        m, k, n: "*b", > 0, real.
        weight_bits: "*b", > 0.
        bandwidth_bytes_per_s: "*b", > 0; of the data sheet.
    Returns:
        "*b"; never falls as m, k, n, bits or `reread_cost` rise, nor as `cache_bytes` or the bandwidth fall.
    Gradient: smooth, and 0 by the sizes where an operand is 1000 times what counts of the cache.
    """
    m, k, n, bits = (jnp.asarray(as_float(value)) for value in (m, k, n, weight_bits))
    activations, weights = m * k * c.activation_bytes, k * n * (bits / BITS_PER_BYTE)
    cache = _CACHE_SHARE * as_float(c.cache_bytes)
    bands = (activations * n + weights * m) / _BAND
    both = _missed(activations, cache) * _missed(weights, cache)
    return c.reread_cost * both * (bands / as_float(bandwidth_bytes_per_s))


def while_fed(arithmetic_s: Leaf, feeding_s: Leaf) -> Float[Array, "*b"]:
    """Seconds of arithmetic that waits for its operands: (arithmetic^4 + feeding^4)^(1/4).

    Args:
        arithmetic_s, feeding_s: "*b", >= 0.
    Gradient: smooth.
    """
    return smooth_largest(as_float(arithmetic_s), as_float(feeding_s), temperature=_TEMPERATURE)


def _missed(operand: Leaf, cache: Leaf) -> Leaf:
    """Share of an operand that the cache does not hold."""
    some = cache > 0
    share = jnp.minimum(operand / jnp.where(some, cache, 1.0), _MOST_CACHES)
    share = share * share * share * share
    return jnp.where(some, share / (1.0 + share), 1.0)
