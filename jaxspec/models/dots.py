"""Products of rows and a matrix: one function for all, and the kernels that it chooses from on a device.

`split_dot`: products of float32 rows by a matrix stored in bfloat16, on processors and GPUs whose matrix units multiply
bfloat16: as exact as in float32, and several times as fast.

A float32 number is the sum of three bfloat16 numbers (8 bits of mantissa each, 24 together), and a product of two bfloat16
numbers is exact in float32. So the rows are split in three, all parts multiplied at once with sums in float32, and the three
results added, the smallest first. What is lost is what any order of sums in float32 loses.

Source: splitting operands over narrow multipliers: Henry, Tang and Heinecke 2019, arXiv:1904.06376 (bfloat16, three parts).

`dot_few_rows`: products of few float32 rows by a matrix with its input columns first, on x86 processors without AVX-512.

XLA on CPUs gives float32 products to a library (YNNPACK), except those that read the rows by their transpose, which its own
kernels (Eigen) take. For 2 to 64 rows these are up to 2.4 times as fast where vectors have 256 bits. All other products, of
attention above all, stay with the library, which is faster there. See docs/decisions/0066-exact-products.md.
"""

from __future__ import annotations

import functools
import math
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, BFloat16, Float

from hwmodels.numerics.compensated_sums import EXACT

__all__ = [
    "dot_few_rows",
    "dot_rows",
    "exact_precision",
    "gpu_has_unit",
    "is_few_rows",
    "processor_features",
    "split_dot",
    "splits",
]

#: Where Linux says it.
_PROCESSOR = pathlib.Path("/proc/cpuinfo")


@functools.cache
def processor_features() -> frozenset[str]:
    """Names of features, as Linux prints them; empty where nothing tells."""
    try:
        return frozenset(_PROCESSOR.read_text(encoding="utf-8").split())
    except (OSError, UnicodeDecodeError):
        return frozenset()


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


#: Vectors of 256 bits that x86 processors have, and of 512, with which these products were not compared.
_NARROW, _WIDE = "avx2", "avx512f"

#: Rows for which the transpose was measured to be no slower: a single one is a product by a vector, which XLA emits itself.
_FEWEST, _MOST = 2, 64

#: Input columns that XLA's own kernels take at once. Of more, they add several sums, which pays from some rows on.
_AT_ONCE, _FEWEST_OF_LONG = 256, 9


def is_few_rows(x: Array, matrix: Array) -> bool:
    """Whether `dot_few_rows` is the faster product of rows and a matrix here."""
    features = processor_features() if jax.default_backend() == "cpu" else frozenset()
    if _NARROW not in features or _WIDE in features or not x.dtype == matrix.dtype == jnp.float32:
        return False
    fewest = _FEWEST if x.shape[-1] <= _AT_ONCE else _FEWEST_OF_LONG
    return fewest <= math.prod(x.shape[:-1]) <= _MOST


def dot_few_rows(x: Float[Array, "*b column"], matrix: Float[Array, "column row"]) -> Float[Array, "*b row"]:
    """x times a matrix, read by the transpose of x; sums may have another order than those of `x @ matrix`."""
    rows = math.prod(x.shape[:-1])
    # The barrier keeps XLA from turning the transpose back: it is this that the choice of kernels depends on.
    transposed = jax.lax.optimization_barrier(x.reshape(rows, x.shape[-1]).T)
    return jnp.einsum("ib,io->bo", transposed, matrix, precision=EXACT).reshape(*x.shape[:-1], matrix.shape[-1])
