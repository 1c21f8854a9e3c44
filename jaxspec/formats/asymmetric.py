"""Asymmetric integers: a row is stored as codes 0, 1, ..., 2^bits - 1 above its smallest value, with a scale and that value in
float16.

Source: the per-token, per-head form of key-value caches in QoQ (Lin et al. 2024, arXiv:2405.04532) and of activations and
weights in DuQuant (Lin et al. 2024, arXiv:2406.01721).
Departs: the smallest value itself is stored, not a whole number of scales, so that rows of one sign lose no codes.
"""

from __future__ import annotations

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Float16, UInt8

from jaxspec.formats.group_quantization import SCALE_BITS, to_float16

__all__ = ["AsymmetricRows", "bits_per_element", "decode", "encode", "num_bits"]

#: Bits of a row beside its codes: scale and smallest value.
_ROW_BITS = 2 * SCALE_BITS


@struct.dataclass
class AsymmetricRows:
    """Codes of rows along the last axis, and what decodes them.

    Attributes:
        code_bits: bits of a stored code.
    """

    codes: UInt8[Array, "*b n"]
    scales: Float16[Array, "*b"]
    lowest: Float16[Array, "*b"]
    code_bits: int = struct.field(pytree_node=False)


def encode(x: Float[Array, "*b n"], bits: int, *, share: float = 1.0) -> AsymmetricRows:
    """Round each row to the nearest of 2^bits evenly spaced values between its smallest and its largest element.

    Args:
        x: finite, within the range of float16; computed in float32.
        bits: static, 1 to 8.
        share: static, in (0, 1]; both ends are multiplied by it, and what lies beyond them becomes the end.
    Raises:
        ValueError: bits or share out of range.
    """
    if not 1 <= bits <= 8:
        raise ValueError(f"bits is {bits}; allowed are 1 to 8")
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}; allowed are shares above 0, at most 1")
    rows = x.astype(jnp.float32)
    lowest = to_float16(share * jnp.min(rows, axis=-1))
    most = (1 << bits) - 1
    scales = to_float16((share * jnp.max(rows, axis=-1) - lowest.astype(jnp.float32)) / most)
    # Codes are the nearest ones with both numbers as they are stored.
    step = scales.astype(jnp.float32)[..., None]
    place = (rows - lowest.astype(jnp.float32)[..., None]) / jnp.where(step > 0, step, 1.0)
    codes = jnp.clip(jnp.round(jnp.where(step > 0, place, 0.0)), 0, most)
    return AsymmetricRows(codes.astype(jnp.uint8), scales, lowest, bits)


def decode(rows: AsymmetricRows) -> Float[Array, "*b n"]:
    """Smallest value plus code times scale, in float32."""
    step, lowest = (part.astype(jnp.float32)[..., None] for part in (rows.scales, rows.lowest))
    return lowest + rows.codes.astype(jnp.float32) * step


def num_bits(rows: AsymmetricRows) -> int:
    """Bits of codes, scales and smallest values."""
    return rows.codes.size * rows.code_bits + rows.scales.size * _ROW_BITS


def bits_per_element(bits: int, elements: float) -> float:
    """Bits of an element of a row of so many, scale and smallest value included."""
    return bits + _ROW_BITS / elements
