"""Pruning by size times input norm."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxspec.compress.footprint import BitsPerValue
from jaxspec.compress.schemes.interface import CompressedMatrix
from jaxspec.compress.selection import hard_mask, log_of, wanda_score

__all__ = ["wanda_half"]


def wanda_half(matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"]) -> CompressedMatrix:
    """Half of each row's weights, those with the largest |weight| times norm; a bit says which, 16 bits hold each.

    Source: Sun et al. 2023, arXiv:2306.11695 (Wanda).
    """
    kept = hard_mask(log_of(wanda_score(matrix, channel_norm)), jnp.asarray(0.5))
    bits = 1.0 + 16.0 * jnp.mean(kept.astype(jnp.float32))
    return CompressedMatrix(jnp.where(kept, matrix, 0.0), BitsPerValue(bits, bits))
