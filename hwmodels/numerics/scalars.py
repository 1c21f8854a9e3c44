"""What a leaf may be (a Python number, a NumPy scalar, an array, a tracer), and how it becomes a float."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Num

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
        "*b"; a Python number stays one (and so takes the precision of what it meets), a float array keeps its type.
    """
    if isinstance(value, (int, float)):
        return float(value)
    array = jnp.asarray(value)
    return array if jnp.issubdtype(array.dtype, jnp.inexact) else array.astype(float)


def with_last_axis(tree: Tree) -> Tree:
    """The same tree with leaves "*b 1": so that they broadcast against "*b operator" and the like."""
    return jax.tree.map(lambda leaf: jnp.asarray(as_float(leaf))[..., None], tree)


def either(condition: Any, then: Number, otherwise: Number) -> Leaf:
    """`then` where the condition holds, else `otherwise`: like `jnp.where`, but with Python numbers it is no array operation,
    and so exact beyond 2^24."""
    if isinstance(condition, bool):
        return then if condition else otherwise
    return jnp.where(condition, then, otherwise)
