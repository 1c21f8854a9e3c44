"""Linear attention of a step: each head decays a matrix, corrects it by a new key and value, and multiplies a query by it.

    S_t = alpha S_(t-1) (1 - beta k k^T) + beta v k^T,   o_t = S_t q

A step reads the matrices of each sequence once, updates them token by token on chip, and writes them: once, or where tokens
are verified, behind each new token, so that a cycle can go on from the last accepted one. Engines that compute the accepted
tokens' matrices again instead write less. Contexts of any length cost the same.

Source: Yang et al. 2024, arXiv:2412.06464, equation 10. Departs: prefill is counted token by token; kernels that work on chunks
multiply somewhat more, in larger products.
"""

from __future__ import annotations

import flax.struct

from hwmodels.network.architecture import Architecture, linear_shape, state_bytes
from hwmodels.numerics.scalars import Leaf, either

__all__ = ["LinearAttentionWork", "linear_attention_work"]

#: Per element of a matrix and token: products with a key, with a query and of value and key, 2 each; and the decay.
_FLOPS_PER_ELEMENT = 7.0


@flax.struct.dataclass
class LinearAttentionWork:
    """Linear attention of all layers of a step that have it; leaves "*b"."""

    flops: Leaf
    state_bytes: Leaf  # read and written


def linear_attention_work(
    architecture: Architecture, *, tokens: Leaf, batch: Leaf, verifying: Leaf
) -> LinearAttentionWork:
    """Work of `tokens` new tokens in each of `batch` sequences.

    Args:
        architecture: leaves "*b".
        tokens, batch: "*b", >= 1.
        verifying: "*b", 1 where tokens may be rejected, else 0.
    """
    a, shape = architecture, linear_shape(architecture)
    written = 1.0 + verifying * either(tokens > 1, tokens - 1.0, 0.0)
    multiplied = _FLOPS_PER_ELEMENT * shape.state + 2.0 * a.linear_conv_tokens * shape.convolved
    return LinearAttentionWork(
        flops=a.num_linear_layers * multiplied * tokens * batch,
        state_bytes=state_bytes(a) * batch * (1.0 + written),
    )
