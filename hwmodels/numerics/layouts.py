"""How arrays of operators lie in memory, which decides how fast programs over many design points are; values are untouched."""

from __future__ import annotations

import jax
from jax.core import Tracer
from jax.custom_batching import custom_vmap
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Float

__all__ = ["batch_innermost"]


@jax.custom_jvp
def batch_innermost(values: Float[Array, "*b n"]) -> Float[Array, "*b n"]:
    """The same values; in a compiled program those of all batches lie side by side, and the last axis is the slow one.

    A step's arrays have a short last axis of operators, and its sizes and rates are single numbers per design point. XLA on a
    CPU lays out batches of them operator by operator, and vectorises the loop over 14 operators, not the one over thousands of
    points; stacking, taking and putting operators are then copies with a stride. XLA passes a layout on from an array to what
    it is computed from and what is computed of it, so that a few places suffice.

    Where slopes are computed too, XLA chooses: a gradient by every leaf is sums over operators, which are a third slower in
    this layout (a decode step and its gradient: 3.0 against 2.1 microseconds of a core).

    Args:
        values: "*b n"; where neither the array nor a `vmap` has batches, nothing happens.
    """
    return _laid_out(values)


@batch_innermost.defjvp
def _left_alone(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (values,), (slope,) = primals, tangents
    return values, slope


@custom_vmap
def _laid_out(values: Array) -> Array:
    if values.ndim < 2 or not isinstance(values, Tracer):
        return values
    return with_layout_constraint(values, Layout(major_to_minor=(values.ndim - 1, *range(values.ndim - 1))))


@_laid_out.def_vmap
def _with_all_batches(size: int, batched: list[bool], values: Array) -> tuple[Array, bool]:
    """The outermost `vmap` decides: batches of an inner one alone may be few."""
    del size, batched
    return _laid_out(values), True
