"""Axes of batches, which lead: arrays with fewer of them are given further ones of length one in front, where it is meant.

Programs run where ranks may not be promoted in silence: two arrays of different rank meet by these functions or not at all.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from hwmodels.numerics.scalars import Number, Tree, as_float

__all__ = ["as_arrays", "rank_of", "same_rank", "select", "with_rank"]


def rank_of(*trees: Any) -> int:
    """Most axes of an array in the trees; 0 where all are single numbers."""
    return max(map(jnp.ndim, jax.tree.leaves(trees)), default=0)


def with_rank(tree: Tree, rank: int) -> Tree:
    """The same tree with arrays of at least `rank` axes; single numbers, which meet arrays of any rank, stay what they are."""
    expand = lambda leaf: jax.lax.broadcast_to_rank(leaf, rank) if 0 < jnp.ndim(leaf) < rank else leaf
    return jax.tree.map(expand, tree)


def same_rank(*trees: Any) -> tuple[Any, ...]:
    """The same trees with as many axes in each array as in the one that has most: arguments "*b" that may be batches each."""
    return with_rank(trees, rank_of(*trees))


def as_arrays(*numbers: Number) -> tuple[Array, ...]:
    """`same_rank` of numbers, all of them as arrays of floats."""
    return same_rank(*(jnp.asarray(as_float(number)) for number in numbers))


def select(condition: Any, then: Any, otherwise: Any) -> Array:
    """`jnp.where` with a mask over the last axis alone, as of operators, and choices that are batches of it."""
    return jnp.where(*same_rank(condition, then, otherwise))
