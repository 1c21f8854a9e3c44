"""How gradients are computed, where that is worth telling XLA; values are never touched.

How arrays of operators lie in memory, which decides how fast programs over many design points are; values are untouched.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

__all__ = ["batch_innermost", "share_cotangent"]


@jax.custom_jvp
def share_cotangent(values: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """The same values; whatever is computed of the cotangent that comes back is computed from one array.

    XLA on a CPU computes cheap operations again in each loop that needs their result. The cotangents of a step's work by
    operator are needed for most leaves, so the loop of each leaf computed large parts of the backward pass again. A division
    is not computed twice: the cotangent is divided by a 1 that is known only when the program runs. An optimization barrier
    would say this better, but it is removed before the CPU's loops are formed.

    Args:
        values: "*b", any shape; not NaN.
    """
    return values


@share_cotangent.defjvp
def _divided_by_one(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (values,), (slope,) = primals, tangents
    return values, slope / jnp.where(values == values, 1.0, jnp.nan)


def batch_innermost(values: Float[Array, "*b n"]) -> Float[Array, "*b n"]:
    """The same values; in a compiled program those of all batches lie side by side, and the last axis is the slow one.

    A step's arrays have a short last axis of operators, and its sizes and rates are single numbers per design point. XLA on a
    CPU lays out batches of them operator by operator, and vectorises the loop over 15 operators, not the one over thousands of
    points; stacking, taking and putting operators are then copies with a stride. XLA passes a layout on from an array to what
    it is computed from and what is computed of it, so that a few places suffice.

    Where slopes are computed too, XLA chooses: a gradient by every leaf is sums over operators, which are a third slower in
    this layout (a decode step and its gradient: 3.0 against 2.1 microseconds of a core).

    Args:
        values: "*b n"; where neither the array nor a `vmap` has batches, nothing happens.
    """
    return _innermost.bind(values, axis=values.ndim - 1) if values.ndim else values


def _laid_out(values: Array, *, axis: int) -> Array:
    if values.ndim < 2:
        return values
    others = [place for place in range(values.ndim) if place != axis]
    return with_layout_constraint(values, Layout(major_to_minor=(axis, *others)))


def _batched(arguments: Any, places: Any, *, axis: int) -> tuple[Any, int]:
    """The batches of a `vmap` stay where they are: nothing is moved."""
    ((values,), (place,)) = arguments, places
    return _innermost.bind(values, axis=axis + (place <= axis)), place


# Of its own, as a custom rule for `vmap` within one for slopes loses where the batches are.
_innermost = Primitive("batch_innermost")
_innermost.def_impl(lambda values, *, axis: values)
_innermost.def_abstract_eval(lambda values, *, axis: values)
ad.primitive_jvps[_innermost] = lambda primals, tangents, *, axis: (primals[0], tangents[0])
batching.primitive_batchers[_innermost] = _batched
mlir.register_lowering(_innermost, mlir.lower_fun(_laid_out, multiple_results=False))
