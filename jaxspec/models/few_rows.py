"""Products of few float32 rows by a matrix with its input columns first, on x86 processors without AVX-512.

XLA on CPUs gives float32 products to a library (YNNPACK), except those that read the rows by their transpose, which its own
kernels (Eigen) take. For 2 to 64 rows these are up to 2.4 times as fast where vectors have 256 bits. All other products, of
attention above all, stay with the library, which is faster there. See docs/decisions/0066-exact-products.md.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.numerics.exact_products import EXACT
from jaxspec.models.processor import processor_features

__all__ = ["dot_few_rows", "is_few_rows"]

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
