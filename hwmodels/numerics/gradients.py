"""How gradients are computed, where that is worth telling XLA; values are never touched."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["cotangent_once"]


@jax.custom_jvp
def cotangent_once(values: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """The same values; whatever is computed of the cotangent that comes back is computed from one array.

    XLA on a CPU computes cheap operations again in each loop that needs their result. The cotangents of a step's work by
    operator are needed for most leaves, so the loop of each leaf computed large parts of the backward pass again. A division
    is not computed twice: the cotangent is divided by a 1 that is known only when the program runs. An optimization barrier
    would say this better, but it is removed before the CPU's loops are formed.

    Args:
        values: "*b", any shape; not NaN.
    """
    return values


@cotangent_once.defjvp
def _divided_by_one(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (values,), (slope,) = primals, tangents
    return values, slope / jnp.where(values == values, 1.0, jnp.nan)
