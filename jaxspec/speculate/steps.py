"""Small pieces that all decoding loops share: what a step sees of a cache, and how near a tie its logits are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

__all__ = ["largest", "slots_before", "top_gap"]

#: Tokens of a vocabulary from which on a reduction finds the two largest logits as fast as `top_k`, on a CPU.
_LARGE = 1 << 14


def largest(
    values: Float[Array, "*b place"], count: int
) -> tuple[Float[Array, "*b candidate"], Int[Array, "*b candidate"]]:
    """The `count` largest values along the last axis and their places, the largest first, and the first of equals.

    XLA on CPUs sorts the whole axis, fifty times as long, where it writes a part of what `top_k` gives into something else:
    barriers keep it in one piece. (One for each: of a barrier for both, XLA's passes over several devices know nothing, and end
    the process.) One alone is looked for.
    """
    if count == 1:
        place = jnp.argmax(values, axis=-1, keepdims=True)
        return jnp.take_along_axis(values, place, axis=-1), place
    top, places = jax.lax.top_k(values, count)
    return jax.lax.optimization_barrier(top), jax.lax.optimization_barrier(places)


def top_gap(logits: Float[Array, "*b vocab"]) -> Float[Array, "*b"]:
    """Largest minus second largest logit; not a number where one of them is none.

    Where a vocabulary is split over devices, XLA gathers all that `top_k` looks into. A reduction runs on each device's part,
    and takes no longer where a vocabulary is large.
    """
    if logits.shape[-1] < _LARGE:
        top, _ = largest(logits, 2)
        return top[..., 0] - top[..., 1]

    def two_largest(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
        return jnp.maximum(one[0], other[0]), jnp.maximum(jnp.minimum(one[0], other[0]), jnp.maximum(one[1], other[1]))

    none = jnp.asarray(-jnp.inf, logits.dtype)
    pairs, start = (logits, jnp.full_like(logits, none)), (none, none)
    first, second = jax.lax.reduce(pairs, start, two_largest, (logits.ndim - 1,))
    return first - second


def slots_before(length: Int[Array, " batch"], tokens: int, slots: int) -> Bool[Array, "batch token slot"]:
    """Slots below `length`, for each token of a step."""
    seen = jnp.arange(slots)[None, :] < length[:, None]
    return jnp.broadcast_to(seen[:, None, :], (length.shape[0], tokens, slots))
