"""What a leaf may be (a Python number, a NumPy scalar, an array, a tracer), and how it becomes a float."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Num

__all__ = [
    "Leaf",
    "Number",
    "as_arrays",
    "as_float",
    "either",
    "rank_of",
    "same_rank",
    "select",
    "with_last_axis",
    "with_rank",
]

#: An argument: one number, or a batch of them in an array.
Number: TypeAlias = Num[ArrayLike, "..."]

#: A field of a tree: a `Number`. Not typed as one, because the same tree also carries vmap axes or shardings.
Leaf: TypeAlias = Any


Tree = TypeVar("Tree")


def as_float(value: Number) -> Leaf:
    """The same number as a float: integers would wrap at 2^31 where the library runs without 64-bit types.

    Args:
        value: "*b", a Python number or an array of any numeric type.
    Returns:
        "*b"; a Python number stays one (and so takes the precision of what it meets), a float array keeps its type, but for
        one of 16 bits or fewer, whose range bytes and rates leave.
    """
    if isinstance(value, (int, float)):
        return float(value)
    array = jnp.asarray(value)
    return array if jnp.issubdtype(array.dtype, jnp.inexact) and array.dtype.itemsize > 2 else array.astype(float)


def with_last_axis(tree: Tree) -> Tree:
    """The same tree with leaves "*b 1": so that they broadcast against "*b operator" and the like."""
    return jax.tree.map(lambda leaf: jnp.asarray(as_float(leaf))[..., None], tree)


def either(condition: Any, then: Number, otherwise: Number) -> Leaf:
    """`then` where the condition holds, else `otherwise`: like `jnp.where`, but with Python numbers it is no array operation,
    and so exact beyond 2^24."""
    if isinstance(condition, bool):
        return then if condition else otherwise
    return jnp.where(condition, then, otherwise)


# Axes of batches, which lead: arrays with fewer of them are given further ones of length one in front, where it is meant.


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
