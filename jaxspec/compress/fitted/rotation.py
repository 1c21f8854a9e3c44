"""Quantization of rotated rows: a rotation spreads what is large over many weights, and is undone in what is multiplied.

Source: DuQuant, Lin et al. 2024, arXiv:2406.01721; QuaRot, Ashkboos et al. 2024, arXiv:2404.00456 (Hadamard matrices).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.numerics.exact_products import exact_matmul
from jaxspec.compress.footprint import BitsPerValue
from jaxspec.compress.schemes import number_forms
from jaxspec.compress.schemes.interface import CompressedMatrix

__all__ = ["rotate_rows", "rotated_int4"]

_INT4 = number_forms.groups("q4_0", 4.0)

#: Largest block that is rotated.
_BLOCK = 128

#: Draws the signs, the same for all matrices of a width: what they are multiplied with is rotated once.
_SIGNS = 2024


def rotated_int4(matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"]) -> CompressedMatrix:
    """4-bit groups of rotated rows, rotated back."""
    del channel_norm
    made = rotate_rows(_INT4.rounded(rotate_rows(matrix)), back=True)
    bits = jnp.full((), _INT4.bits(*matrix.shape))
    return CompressedMatrix(made, BitsPerValue(bits, bits))


def rotate_rows(matrix: Float[Array, "row column"], *, back: bool = False) -> Float[Array, "row column"]:
    """Each row times a rotation: random signs, then Hadamard blocks of the largest power of two that divides the columns.

    Args:
        back: static; the inverse.
    """
    rows, columns = matrix.shape
    block = min(_BLOCK, columns & -columns)
    signs = jax.random.rademacher(jax.random.key(_SIGNS), (columns,), matrix.dtype)[None]
    hadamard = _hadamard(block).astype(matrix.dtype) / block**0.5
    mixed = lambda x: exact_matmul(x.reshape(rows, -1, block), hadamard).reshape(rows, columns)
    return mixed(matrix) * signs if back else mixed(matrix * signs)


def _hadamard(size: int) -> Float[Array, "size size"]:
    """Sylvester's matrix, symmetric, of a power of two."""
    index = jnp.arange(size)
    ones = jax.lax.population_count(index[:, None] & index[None])
    return 1.0 - 2.0 * (ones % 2).astype(jnp.float32)
