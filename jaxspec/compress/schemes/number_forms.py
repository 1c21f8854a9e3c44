"""How a matrix is stored in few bits: what is read back of it, and how many bits each weight takes, padding included."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxspec.formats import group_quantization, mx, tile_layout
from jaxspec.formats.group_quantization import BLOCK, SCALE_BITS

__all__ = ["NumberForm", "channels", "groups", "microscaling", "tiles"]


@dataclasses.dataclass(frozen=True)
class NumberForm:
    """One way to store a matrix.

    Attributes:
        rounded: matrices "*b row column", each stored by itself -> what is read back, in float32.
        bits: rows and columns of a matrix -> bits per weight.
    """

    rounded: Callable[[Float[Array, "*b row column"]], Float[Array, "*b row column"]] = dataclasses.field(repr=False)
    bits: Callable[[int, int], float] = dataclasses.field(repr=False)


def groups(scheme: group_quantization.Scheme, code_bits: float) -> NumberForm:
    """Groups of 32 along a row, which is what an output sums over; zeros fill up the last one."""

    def rounded(matrix: Float[Array, "*b row column"]) -> Float[Array, "*b row column"]:
        columns = matrix.shape[-1]
        padded = jnp.pad(matrix, [(0, 0)] * (matrix.ndim - 1) + [(0, -columns % BLOCK)])
        return group_quantization.decode(group_quantization.encode(padded, scheme))[..., :columns]

    return NumberForm(
        rounded, lambda rows, columns: math.ceil(columns / BLOCK) * (BLOCK * code_bits + SCALE_BITS) / columns
    )


def tiles(scheme: group_quantization.Scheme, code_bits: float) -> NumberForm:
    """Groups of 32 consecutive weights in the order of a matrix unit's tiles: 2 inputs by 16 outputs each.

    A tile's rows are inputs, since weights stand right of activations there.
    """

    def rounded(matrix: Float[Array, "*b row column"]) -> Float[Array, "*b row column"]:
        across = jnp.swapaxes(matrix, -1, -2)
        return jnp.swapaxes(tile_layout.decode(tile_layout.encode(across, scheme)), -1, -2)

    def bits(rows: int, columns: int) -> float:
        return (
            math.prod(tile_layout.padded_shape((columns, rows))) * (code_bits + SCALE_BITS / BLOCK) / (rows * columns)
        )

    return NumberForm(rounded, bits)


def channels(scheme: group_quantization.Scheme, code_bits: float) -> NumberForm:
    """Symmetric integers with one scale for each row, an output channel."""

    def rounded(matrix: Float[Array, "*b row column"]) -> Float[Array, "*b row column"]:
        return group_quantization.decode(group_quantization.encode(matrix, scheme, group_size=None))

    return NumberForm(rounded, lambda rows, columns: code_bits + SCALE_BITS / columns)


def microscaling(element: mx.ElementFormat) -> NumberForm:
    """MX blocks of 32 along a row."""
    return NumberForm(
        lambda matrix: mx.decode(mx.encode(matrix, element)),
        lambda rows, columns: mx.num_bits((rows, columns), element) / (rows * columns),
    )
