"""Non-uniform values: each row has its own few, where its important weights are.

Source: Kim et al. 2023, arXiv:2306.07629 (SqueezeLLM).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.numerics.exact_products import exact_matmul
from jaxspec.compress.footprint import BitsPerValue
from jaxspec.compress.schemes.interface import CompressedMatrix

__all__ = ["squeezellm_4", "weighted_values"]

_BITS = 4

#: Lloyd's algorithm hardly moves a value after so many rounds.
_ROUNDS = 20


def squeezellm_4(matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"]) -> CompressedMatrix:
    """4 bits per weight and 16 values of 16 bits per row."""
    importance = jnp.square(channel_norm)

    def of_row(row: Float[Array, " column"]) -> Float[Array, " column"]:
        values = weighted_values(row, importance, 1 << _BITS)
        return values[_nearest(row, values)]

    bits = jnp.full((), _BITS + 16.0 * (1 << _BITS) / matrix.shape[1])
    return CompressedMatrix(jax.lax.map(of_row, matrix), BitsPerValue(bits, bits))


def weighted_values(
    row: Float[Array, " column"], importance: Float[Array, " column"], count: int
) -> Float[Array, " value"]:
    """Values near which weighted numbers lie: k-means in one dimension, from quantiles on; a value that has no number stays.

    Args:
        importance: >= 0, of each number.
        count: static.
    """
    start = jnp.quantile(row, (jnp.arange(count, dtype=row.dtype) + 0.5) / count)

    def move(values: Array, _: None) -> tuple[Array, None]:
        own = jax.nn.one_hot(_nearest(row, values), count, dtype=row.dtype) * importance[:, None]
        total = own.sum(axis=0)
        return jnp.where(total > 0, exact_matmul(row, own) / jnp.where(total > 0, total, 1.0), values), None

    found, _ = jax.lax.scan(move, start, None, length=_ROUNDS)
    return found


def _nearest(row: Array, values: Array) -> Array:
    return jnp.argmin(jnp.abs(row[:, None] - values[None]), axis=1)
