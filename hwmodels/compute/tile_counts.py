"""Counts of tiles, and the time of the best tiling, as models of GPU kernels need them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp

from hwmodels.numerics.scalars import Leaf

__all__ = ["Ceiling", "exact_ceiling", "soft_minimum"]

#: Tiles that cover an extent, given the extent and the tile.
Ceiling: TypeAlias = Callable[[Leaf, Leaf], Leaf]


def exact_ceiling(one: Leaf, other: Leaf) -> Leaf:
    """Tiles that cover an extent; constant to the gradient, as ceil is."""
    count = jnp.ceil(one / other)
    # XLA multiplies by the inverse of a constant, which may come out just above a whole number.
    return jnp.where((count - 1.0) * other >= one, count - 1.0, count)


def soft_minimum(times: Sequence[Leaf]) -> Leaf:
    """(sum of t^-16)^(-1/16): libraries choose well but not perfectly; 24 equal times give 0.82 of one.

    A sixteenth power is four squarings, and its root four square roots.
    """
    times = jnp.broadcast_arrays(*times)
    least = times[0]
    for time in times[1:]:
        least = jnp.minimum(least, time)
    least = jax.lax.stop_gradient(least)
    total = jnp.zeros_like(least)
    for time in times:
        share = least / time
        for _ in range(4):
            share = share * share
        total = total + share
    for _ in range(4):
        total = jnp.sqrt(total)
    return least / total
