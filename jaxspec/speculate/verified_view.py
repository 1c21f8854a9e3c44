"""Context of the tokens of a verification: committed tokens in the cache, and the way from the root to themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from jaxspec.models.kv_cache import CachedKV, KVCache, take_slots
from jaxspec.models.text_order import TextOrder, text_order
from jaxspec.speculate.steps import slots_before

__all__ = ["VerifiedView", "verified_view"]


class VerifiedView(NamedTuple):
    """Arguments of `forward`, by their names there."""

    positions: Int[Array, "batch token"]
    mask: Bool[Array, "batch token token"]
    sources: Sequence[CachedKV]
    order: TextOrder | None


def verified_view(
    cache: KVCache,
    root: Int[Array, " batch"],
    mask: Bool[Array, "*batch token token"],
    depth: Int[Array, "*batch token"],
    deepest: int,
) -> VerifiedView:
    """Arguments of `forward` for the root and the nodes of a tree.

    What is added up is the same, in the same order, however many of a token's predecessors are verified along with it: all
    but the `deepest` + 1 last tokens are read in place from the cache, and these in the order of the text. So a token has
    the same keys, values and logits, to the last bit, with and without speculation, as long as a row of a matrix product does
    not depend on which row it is.

    Args:
        cache: its slots are positions of the text. root: position of the root, which is not in the cache yet.
        mask: which tokens of the step each of them sees. depth: of each token below the root; in a tree, at most `deepest`.
    """
    batch, tokens = root.shape[0], depth.shape[-1]
    positions = root[:, None] + jnp.atleast_2d(depth)
    mask = jnp.broadcast_to(mask, (batch, tokens, tokens))
    if deepest == 0:
        before = slots_before(root, tokens, cache.num_slots)
        return VerifiedView(positions, mask, [CachedKV(cache, before)], None)
    # Of the nearest tokens, those that were committed.
    slot = root[:, None] + jnp.arange(-deepest, 0)[None]
    nearest = jnp.maximum(positions - deepest, 0)[:, :, None]
    recent = CachedKV(take_slots(cache, jnp.maximum(slot, 0)), slot[:, None, :] >= nearest)
    far = CachedKV(cache, jnp.arange(cache.num_slots)[None, None] < nearest)
    of_columns = jnp.concatenate([slot, positions], axis=1)
    order = text_order(positions, of_columns, jnp.concatenate([recent.mask, mask], axis=2), deepest + 1)
    return VerifiedView(positions, mask, [far, recent], order)
