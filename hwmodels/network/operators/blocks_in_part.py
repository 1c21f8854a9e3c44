"""A step that runs some of the layers' blocks and skips the others: work that is left of each operator."""

from __future__ import annotations

import dataclasses

import jax
from jaxtyping import Array, Float

from hwmodels.network.operators.work import OPERATORS, OperatorWork, over_operators
from hwmodels.numerics.axes import same_rank
from hwmodels.numerics.scalars import Leaf

__all__ = ["blocks_in_part"]

_ATTENTION = ("qkv", "latent", "attention", "linear_attention", "o")

_OUTSIDE_LAYERS = ("embed", "lm_head")


def blocks_in_part(work: OperatorWork, attention_share: Leaf, feed_forward_share: Leaf) -> OperatorWork:
    """The work of a step that runs such shares of all attention blocks and of all feed-forward networks.

    What a block executes is unchanged, so that shapes of products stay; how often operators start and what they move falls.
    The last norm counts with those of the layers. Nothing changes in what is held.

    Args:
        attention_share, feed_forward_share: "*b", in [0, 1].
    Gradient: right by both shares, which enter linearly.
    """
    both = (attention_share + feed_forward_share) / 2.0
    share = over_operators(
        {
            name: 1.0 if name in _OUTSIDE_LAYERS else attention_share if name in _ATTENTION else feed_forward_share
            for name in OPERATORS
        }
        | {"norm": both}
    )

    def less(totals: Float[Array, "... operator"] | None) -> Float[Array, "... operator"] | None:
        return None if totals is None else _scaled(totals, share)

    moved = ("weight_bytes", "kv_bytes", "activation_bytes")
    scaled = ("flops", *moved, "launches", "coded_elements", "coded_bits", "coded_tensors")
    found = {name: less(getattr(work, name)) for name in scaled}
    read, written = (
        jax.tree.map(lambda count: _scaled(count, attention_share), count)
        for count in (work.kv_elements, work.encoded_kv)
    )
    return dataclasses.replace(work, **found, kv_elements=read, encoded_kv=written)


def _scaled(totals: Array, share: Leaf) -> Array:
    totals, share = same_rank(totals, share)
    return totals * share
