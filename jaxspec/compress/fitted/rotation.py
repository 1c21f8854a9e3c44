"""Quantization of rotated rows: a rotation spreads what is large over many weights, and is undone in what is multiplied.

Source: DuQuant, Lin et al. 2024, arXiv:2406.01721; QuaRot, Ashkboos et al. 2024, arXiv:2404.00456 (Hadamard matrices).
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxspec.compress.footprint import BitsPerValue
from jaxspec.compress.schemes import number_forms
from jaxspec.compress.schemes.interface import CompressedMatrix
from jaxspec.models.rotated_rows import rotate_rows

__all__ = ["rotated_int4"]

_INT4 = number_forms.groups("q4_0", 4.0)


def rotated_int4(matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"]) -> CompressedMatrix:
    """4-bit groups of rotated rows, rotated back."""
    del channel_norm
    made = rotate_rows(_INT4.rounded(rotate_rows(matrix)), back=True)
    bits = jnp.full((), _INT4.bits(*matrix.shape))
    return CompressedMatrix(made, BitsPerValue(bits, bits))
