"""Further time of a GPU's product whose sums over k are split, because its columns are too few to fill all multiprocessors.

    split   = limit / (1 + (busy / filling)^2)
    limit   = (a^-4 + b^-4)^(-1/4),   a = split_s · q^2 / (q^2 + 2),   b = 8 / 3^(3/2) · filling,   q = k / 1024
    filling = 48 multiprocessors · k · w / (memory_efficiency · bandwidth)                            w: bytes per weight

busy is what the product takes otherwise, arithmetic and memory joined; filling is how long reading 48 columns per
multiprocessor takes, which are enough to fill the GPU. Splitting takes a second kernel (a), but never longer than b: beyond
that, busy + split would fall at busy = filling / sqrt(3). So the sum never falls with busy, nor with k and w at the same busy.
Busy never falls with rows, columns, depth or bits, and so the sum does not.

Source: form and constants chosen on the GEMM tables of aiconfigurator-core 0.12.0.
Departs: until record 0084 n / (48 multiprocessors) stood in the place of busy / filling, without a limit: wider products could
be faster.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.numerics.scalars import Leaf, Number, as_float

__all__ = ["filling_time", "split_time"]

_DEPTH_ELEMENTS = 1024.0
_FILLING_COLUMNS = 48.0
#: Over which a decline of 1 / (1 + x^2), at most 3^(3/2) / 8 per unit of x, outpaces x itself.
_STEEPEST = 8.0 / 3.0**1.5


def filling_time(k: Leaf, *, multiprocessors: Leaf, weight_s: Leaf) -> Float[Array, "*b"]:
    """Seconds of reading the columns that fill a GPU.

    Args:
        k: "*b", >= 0; depth.
        multiprocessors: "*b", > 0.
        weight_s: "*b", > 0; seconds of reading one weight as kernels do.
    """
    return _FILLING_COLUMNS * multiprocessors * k * weight_s


def split_time(split_s: Leaf, k: Number, *, busy_s: Number, filling_s: Leaf) -> Float[Array, "*b"]:
    """Seconds that splitting sums over k adds to a product.

    Args:
        split_s: "*b", >= 0; of splitting the deepest sums.
        k: "*b", >= 0, real; depth.
        busy_s: "*b", >= 0; of arithmetic and memory of the same product.
        filling_s: "*b", >= 0, see `filling_time`; where it is 0 there is nothing to split.
    Returns:
        "*b"; with `busy_s` a sum that never falls as `busy_s`, k or `filling_s` rise.
    Gradient: smooth.
    """
    q, busy = jnp.asarray(as_float(k)) / _DEPTH_ELEMENTS, jnp.asarray(as_float(busy_s))
    second = split_s * (q * q / (q * q + 2.0))
    some = filling_s > 0
    filling = jnp.where(some, filling_s, 1.0)
    # Ratios, as fourth powers of seconds are beyond single precision.
    over, filled = second / (_STEEPEST * filling), busy / filling
    limit = second / jnp.sqrt(jnp.sqrt(1.0 + over * over * over * over))
    return jnp.where(some, limit / (1.0 + filled * filled), 0.0)
