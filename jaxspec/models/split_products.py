"""Products of float32 rows by a matrix stored in bfloat16, on processors and GPUs whose matrix units multiply bfloat16: as
exact as in float32, and several times as fast.

A float32 number is the sum of three bfloat16 numbers (8 bits of mantissa each, 24 together), and a product of two bfloat16
numbers is exact in float32. So the rows are split in three, all parts multiplied at once with sums in float32, and the three
results added, the smallest first. What is lost is what any order of sums in float32 loses.

Source: splitting operands over narrow multipliers: Henry, Tang and Heinecke 2019, arXiv:1904.06376 (bfloat16, three parts).
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, BFloat16, Float

from hwmodels.numerics.exact_products import EXACT
from jaxspec.models.processor import processor_features

__all__ = ["exact_precision", "gpu_has_unit", "split_dot", "splits"]

#: What Linux says of an x86 processor with such a unit.
_UNIT = "amx_bf16"

#: NVIDIA GPUs from this compute capability on.
_CAPABILITY = 8.0

#: From so many rows on, GPUs multiply float32 matrices in parts too. XLA has compiled such a product of a single row to less
#: than float32 (a relative error of 2e-3 on an H200), and few rows take no longer in float32.
_MANY_ROWS = 64


def _has_unit() -> bool:
    """Whether this processor multiplies bfloat16."""
    return _UNIT in processor_features()


@functools.cache
def gpu_has_unit() -> bool:
    """Whether programs run on an NVIDIA GPU that multiplies bfloat16; of other makers' GPUs this is not known."""
    if jax.default_backend() != "gpu":
        return False
    try:
        return float(jax.local_devices()[0].compute_capability) >= _CAPABILITY
    except (AttributeError, ValueError):
        return False


def splits(rows: Any, matrix: Any, count: int = 2) -> bool:
    """Whether products of rows of one type by a matrix stored in another are taken by `split_dot`: float32 by bfloat16, where
    programs run on a GPU or a processor that has a matrix unit for bfloat16.

    Args:
        rows, matrix: types.
        count: of rows. GPUs multiply a single one without a matrix unit, as fast as they read the matrix.
    """
    here = _has_unit() if jax.default_backend() == "cpu" else count > 1 and gpu_has_unit()
    return here and rows == jnp.float32 and matrix == jnp.bfloat16


def exact_precision(dtype: Any, count: int) -> Any:
    """`precision` of products of `count` rows by a matrix, both of one type, that are as exact as in this type.

    Many float32 rows are multiplied in six bfloat16 products on a GPU that has a unit for them. On an H200 3,200 rows took half
    the time of float32 (4.1 instead of 7.5 ms), and their program a fifth of the time to compile (2.2 instead of 10.5 s).
    """
    in_parts = dtype == jnp.float32 and count >= _MANY_ROWS and gpu_has_unit()
    return jax.lax.DotAlgorithmPreset.BF16_BF16_F32_X6 if in_parts else EXACT


def _parts(x: Float[Array, "row column"]) -> BFloat16[Array, "part row column"]:
    """Three bfloat16 matrices whose sum is x, the largest first."""
    found, rest = [], x
    for _ in range(3):
        # The upper half of the pattern: cut off and not rounded, which shifts do to many numbers at once, and nothing is lost.
        pattern = jax.lax.bitcast_convert_type(rest, jnp.uint32) >> 16
        found.append(pattern.astype(jnp.uint16))
        rest = rest - jax.lax.bitcast_convert_type(pattern << 16, jnp.float32)
    return jax.lax.bitcast_convert_type(jnp.stack(found), jnp.bfloat16)


def _product(x: Float[Array, "row column"], w: BFloat16[Array, "*w"], axis: int) -> Float[Array, "row other"]:
    """Sums over the columns of x and one axis of w."""
    dims = (((2,), (axis,)), ((), ()))
    high, middle, low = jax.lax.dot_general(_parts(x), w, dims, preferred_element_type=jnp.float32)
    return high + (middle + low)


@jax.custom_vjp
def split_dot(x: Float[Array, "row column"], w: BFloat16[Array, "output column"]) -> Float[Array, "row output"]:
    """x W^T in float32, with W as (output, input column) in bfloat16.

    Its gradient is that of the float32 product; W's is rounded to bfloat16, as W is.
    """
    return _product(x, w, 1)


def _forward(x: Array, w: Array):
    return _product(x, w, 1), (x, w)


def _backward(saved, cotangent: Array):
    x, w = saved
    by_matrix = jax.lax.dot_general(cotangent, x, (((0,), (0,)), ((), ())), precision=EXACT)
    return _product(cotangent, w, 0), by_matrix.astype(w.dtype)


split_dot.defvjp(_forward, _backward)
