"""Weights in two levels of integers: 8 bits per row, and within these 4 bits per group, with whole numbers as scales.

Source: QoQ, Lin et al. 2024, arXiv:2405.04532, Section 4.1 (progressive group quantization).
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxspec.compress.footprint import BitsPerValue
from jaxspec.compress.schemes.interface import CompressedMatrix
from jaxspec.formats.group_quantization import SCALE_BITS, to_float16
from jaxspec.models.rotated_rows import block_of, rotate_rows

__all__ = ["progressive", "qoq_w4"]

#: Bits of a code, and of a group's scale and zero point together.
_BITS, _GROUP_BITS = 4, 16

#: Largest integer of the first level: groups that are read back stay within 8 bits (the paper's protective range).
_PROTECTED = 119.0


def qoq_w4(matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"]) -> CompressedMatrix:
    """Rotated rows in two levels, rotated back; groups are as long as the blocks of the rotation, 128 where these fit."""
    del channel_norm
    group = block_of(matrix.shape[1])
    bits = jnp.full((), _BITS + _GROUP_BITS / group + SCALE_BITS / matrix.shape[1])
    made = rotate_rows(progressive(rotate_rows(matrix), group), back=True)
    return CompressedMatrix(made, BitsPerValue(bits, bits))


def progressive(matrix: Float[Array, "row column"], group: int) -> Float[Array, "row column"]:
    """What is read back of a matrix.

    Args:
        group: static; elements of a row with a scale and a zero point of their own.
    """
    scale = to_float16(jnp.max(jnp.abs(matrix), axis=1) / _PROTECTED).astype(matrix.dtype)[:, None]
    whole = jnp.round(matrix / jnp.where(scale > 0, scale, 1.0)).reshape(len(matrix), -1, group)
    ends = jnp.min(whole, axis=-1, keepdims=True), jnp.max(whole, axis=-1, keepdims=True)
    most = (1 << _BITS) - 1
    step = jnp.maximum(jnp.round((ends[1] - ends[0]) / most), 1.0)
    zero = jnp.round(-ends[0] / step)
    codes = jnp.clip(jnp.round(whole / step) + zero, 0, most)
    return ((codes - zero) * step).reshape(matrix.shape) * scale
