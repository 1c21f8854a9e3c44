"""Small pieces that all decoding loops share: what a step sees of a cache, and how near a tie its logits are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

__all__ = ["slots_before", "top_gap"]


def top_gap(logits: Float[Array, "*b vocab"]) -> Float[Array, "*b"]:
    """Largest minus second largest logit.

    The two are joined by a sum: with a slice of each, XLA on CPUs sorts the whole vocabulary, a hundred times as long.
    """
    top, _ = jax.lax.top_k(logits, 2)
    signs = jax.lax.broadcast_to_rank(jnp.array([1, -1], top.dtype), top.ndim)
    return jnp.sum(top * signs, axis=-1)


def slots_before(length: Int[Array, " batch"], tokens: int, slots: int) -> Bool[Array, "batch token slot"]:
    """Slots below `length`, for each token of a step."""
    seen = jnp.arange(slots)[None, :] < length[:, None]
    return jnp.broadcast_to(seen[:, None, :], (length.shape[0], tokens, slots))
