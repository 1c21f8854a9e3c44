"""Matrix products with narrow operands and wide sums, in the forward and the backward pass alike."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxspec.models.split_products import exact_precision, split_dot, splits


def _contract(a: Array, b: Array, axis_a: int, axis_b: int, out_dtype: Any) -> Array:
    dims = (((axis_a,), (axis_b,)), ((), ()))
    return jax.lax.dot_general(a, b, dims, preferred_element_type=out_dtype)


@jax.custom_vjp
def _narrow_dot(x: Array, w: Array) -> Array:
    return _narrow_dot_forward(x, w)[0]


def _narrow_dot_forward(x: Array, w: Array):
    x, w = x.astype(jnp.bfloat16), w.astype(jnp.bfloat16)
    return _contract(x, w, 1, 1, jnp.float32), (x, w)


def _narrow_dot_backward(saved, cotangent: Array):
    x, w = saved
    cotangent = cotangent.astype(jnp.bfloat16)
    return _contract(cotangent, w, 1, 0, jnp.float32), _contract(cotangent, x, 0, 0, jnp.float32)


_narrow_dot.defvjp(_narrow_dot_forward, _narrow_dot_backward)


def dot_rows(
    x: Float[Array, "*b column"], w: Float[Array, "row column"], dot_dtype: Any = None
) -> Float[Array, "*b row"]:
    """x W^T, with W as (output row, input column), in the type of x; W may be narrower.

    Args:
        dot_dtype: None multiplies in x's own dtype. jnp.bfloat16 rounds both operands (and, going back, the cotangent)
            to bfloat16 and sums in float32: matrix units need this form, and XLA on CPUs runs it four times faster
            than bfloat16 sums.
    Raises:
        ValueError: another dot_dtype.
    """
    if dot_dtype is None or dot_dtype == x.dtype:
        rows = math.prod(x.shape[:-1])
        if rows and splits(x.dtype, w.dtype, rows):
            return split_dot(x.reshape(rows, x.shape[-1]), w).reshape(*x.shape[:-1], w.shape[0])
        w, precision = w.astype(x.dtype), exact_precision(x.dtype, rows)
        if x.ndim == 2:
            # XLA on CPUs transposes W anew for the product of a single row of a matrix, not for one of a batch of them.
            return jnp.einsum("...i,oi->...o", x[None], w, precision=precision)[0]
        return jnp.einsum("...i,oi->...o", x, w, precision=precision)
    if dot_dtype != jnp.bfloat16:
        raise ValueError(f"dot_dtype is {dot_dtype}; allowed are None (the operands' own) and bfloat16")
    flat = _narrow_dot(x.reshape(-1, x.shape[-1]), w)
    return flat.reshape(*x.shape[:-1], w.shape[0]).astype(x.dtype)
