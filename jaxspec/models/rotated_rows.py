"""Rows times a rotation that mixes their elements: what is large in a few of them is spread over many.

Source: QuaRot, Ashkboos et al. 2024, arXiv:2404.00456 (Hadamard matrices); DuQuant, Lin et al. 2024, arXiv:2406.01721 (blocks).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.numerics.exact_products import exact_matmul

__all__ = ["block_of", "rotate_rows"]

#: Largest block that is rotated.
_BLOCK = 128

#: Draws the signs, the same for all rows of a width: activations are rotated as the weights that they meet.
_SIGNS = 2024


def block_of(columns: int) -> int:
    """Elements that are rotated together: the largest power of two that divides the columns, at most 128."""
    return min(_BLOCK, columns & -columns)


def rotate_rows(matrix: Float[Array, "row column"], *, back: bool = False) -> Float[Array, "row column"]:
    """Each row times a rotation: random signs, then Hadamard blocks of the largest power of two that divides the columns.

    Args:
        back: static; the inverse.
    """
    rows, columns = matrix.shape
    block = block_of(columns)
    signs = jax.random.rademacher(jax.random.key(_SIGNS), (columns,), matrix.dtype)[None]
    hadamard = _hadamard(block).astype(matrix.dtype) / block**0.5
    mixed = lambda x: exact_matmul(x.reshape(rows, columns // block, block), hadamard).reshape(rows, columns)
    return mixed(matrix) * signs if back else mixed(matrix * signs)


def _hadamard(size: int) -> Float[Array, "size size"]:
    """Sylvester's matrix, symmetric, of a power of two."""
    index = jnp.arange(size)
    ones = jax.lax.population_count(index[:, None] & index[None])
    return 1.0 - 2.0 * (ones % 2).astype(jnp.float32)
