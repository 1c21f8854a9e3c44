"""What a GPU's product takes longer because the host starts kernels one by one, without a CUDA graph.

    wait = (host^4 + product^4)^(1/4) - product
    host = host_s + host_rows_s / (1 + (24 / m)^8)                        m: rows; product: launch, arithmetic and memory

While the GPU computes, the host prepares the next product; so the longer of the two counts, not their sum. From 24 rows on,
vLLM's FP8 blocks on Hopper take other kernels (the engine's own limit is 32 rows), which take the host longer to start.

Source: form and constants chosen on the tables of vLLM's FP8 blocks in aiconfigurator-core 0.12.0, which its collector measures
without a graph: small products of any size take 57 µs on an H200, 84 to 93 µs from 32 rows on, 0.3 ms on an L40S.
Departs: rows that are no multiple of 4 take the host 10 % longer on Hopper; that is not modelled, as more rows would be faster.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.numerics.smoothing import smooth_largest

__all__ = ["host_wait"]

_SWITCH_ROWS = 24.0
#: Beyond which the eighth power is 1 in single precision, and might overflow.
_MOST_SWITCHES = 1e3
#: Of the maximum of host and GPU, as of that of arithmetic and memory.
_TEMPERATURE = 0.25


def host_wait(m: Number, *, host_s: Leaf, host_rows_s: Leaf, product_s: Number) -> Float[Array, "*b"]:
    """Seconds that the host adds to a product.

    Args:
        m: "*b", >= 0, real; rows.
        host_s: "*b", >= 0; of the host, for a product of few rows. 0 with `host_rows_s`: a graph, which never waits.
        host_rows_s: "*b", >= 0; what many rows take the host longer.
        product_s: "*b", >= 0; of the product without a host.
    Returns:
        "*b"; with `product_s` a sum that never falls as m or `product_s` rise.
    Gradient: smooth.
    """
    share = jnp.minimum(jnp.asarray(as_float(m)) / _SWITCH_ROWS, _MOST_SWITCHES)
    for _ in range(3):
        share = share * share
    host, product = as_float(host_s) + host_rows_s * (share / (1.0 + share)), jnp.asarray(as_float(product_s))
    return smooth_largest(host, product, temperature=_TEMPERATURE) - product
