"""Rows in a space that was made for them: rotated block by block, reordered, and rotated block by block again.

The first rotation spreads what is large over its block, the order deals large and small channels out to all blocks alike, and
the second rotation spreads what is left. All three are found on calibration text (see `jaxspec.compress.fitted.spreading`).

Source: DuQuant, Lin et al. 2024, arXiv:2406.01721. One rotation serves all blocks of a row, as in the authors' program.
"""

from __future__ import annotations

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int

from hwmodels.numerics.exact_products import exact_matmul
from jaxspec.models.rotated_rows import block_of

__all__ = ["Spread", "spread_rows", "spread_shapes"]


@struct.dataclass
class Spread:
    """A space for rows of some width.

    Attributes:
        rotations: both rotations of a block, the second below the first.
        order: the channel that comes to each place between the rotations; whole numbers, of any type.
    """

    rotations: Float[Array, "twice_block block"]
    order: Float[Array, " column"] | Int[Array, " column"]


def spread_shapes(columns: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the two arrays of a `Spread` for rows of a width."""
    return {"rotations": (2 * block_of(columns), block_of(columns)), "order": (columns,)}


def spread_rows(matrix: Float[Array, "row column"], space: Spread, *, back: bool = False) -> Float[Array, "row column"]:
    """Each row in the space, or back from it.

    Args:
        back: static; the inverse.
    """
    first, second = jnp.split(space.rotations.astype(matrix.dtype), 2)
    order = space.order.astype(jnp.int32)
    if back:
        return _turned(_turned(matrix, second.T)[:, jnp.argsort(order)], first.T)
    return _turned(_turned(matrix, first)[:, order], second)


def _turned(matrix: Float[Array, "row column"], rotation: Float[Array, "block block"]) -> Array:
    blocks = matrix.reshape(-1, rotation.shape[0])
    return exact_matmul(blocks, rotation).reshape(matrix.shape)
