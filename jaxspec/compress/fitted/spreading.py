"""Spaces in which rows have no outliers, and weights rounded in them.

Source: DuQuant, Lin et al. 2024, arXiv:2406.01721: smoothing, a rotation per block that is built greedily from the largest
element, a zigzag order of the channels, a second rotation of the same kind. Share 0.6 of smoothing, blocks of 128, 256 steps
and the share 0.8 of weights' ranges are the paper's.
Departs: one rotation for all blocks, as in the authors' program; the orthogonal matrix behind each step is drawn once.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, Int

from hwmodels.numerics.exact_products import exact_matmul
from jaxspec.compress.fitted.smoothing import input_scale
from jaxspec.compress.footprint import BitsPerValue
from jaxspec.compress.schemes.interface import CompressedMatrix
from jaxspec.formats import asymmetric
from jaxspec.models.rotated_rows import block_of
from jaxspec.models.spread_rows import Spread, spread_rows

__all__ = ["InputSpace", "duquant_space", "duquant_w4", "greedy_rotation", "zigzag_order"]

_BITS, _WEIGHT_SHARE, _SMOOTHING = 4, 0.8, 0.6

#: Steps that are tried; the one with the smallest peak is taken.
_STEPS = 256

#: Draws the orthogonal matrix.
_SEED = 2024


@struct.dataclass
class InputSpace:
    """What a matrix's inputs are divided by, and the space in which they are then rounded."""

    scale: Float[Array, " column"]
    space: Spread


def duquant_space(largest_weight: Float[Array, " column"], sample: Float[Array, "row column"]) -> InputSpace:
    """The space of the inputs of some matrices.

    Args:
        largest_weight: of each column, in size, over all matrices that read these inputs.
        sample: of the inputs, rows of calibration text.
    """
    size = jnp.max(jnp.abs(sample), axis=0)
    scale = input_scale(size, largest_weight, input_power=_SMOOTHING, weight_power=1 - _SMOOTHING)
    rows, block = sample / scale[None], block_of(sample.shape[1])
    first = greedy_rotation(rows.reshape(-1, block))
    rows = exact_matmul(rows.reshape(-1, block), first).reshape(rows.shape)
    order = zigzag_order(jnp.max(jnp.abs(rows), axis=0), block)
    second = greedy_rotation(rows[:, order].reshape(-1, block))
    return InputSpace(scale, Spread(jnp.concatenate([first, second]), order))


def duquant_w4(
    matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"], found: InputSpace | None = None
) -> CompressedMatrix:
    """4-bit asymmetric integers, one scale per row, of rows in the space of their inputs.

    Args:
        found: None: made of the norms alone, which suits a matrix without calibration text.
    """
    if found is None:
        found = duquant_space(jnp.max(jnp.abs(matrix), axis=0), channel_norm[None])
    rows = spread_rows(matrix * found.scale[None], found.space)
    rows = asymmetric.decode(asymmetric.encode(rows, _BITS, share=_WEIGHT_SHARE))
    bits = jnp.full((), asymmetric.bits_per_element(_BITS, matrix.shape[1]))
    return CompressedMatrix(spread_rows(rows, found.space, back=True) / found.scale[None], BitsPerValue(bits, bits))


def greedy_rotation(rows: Float[Array, "row block"]) -> Float[Array, "block block"]:
    """A rotation after which the largest element of the rows is small.

    Each step rotates so that the channel with the largest element is spread evenly over the block. Of the products of the first
    so many steps, none included, the one with the smallest peak is returned.
    """
    base, own = jnp.asarray(_base(rows.shape[1]), rows.dtype), jnp.arange(rows.shape[1])
    identity = jnp.eye(rows.shape[1], dtype=rows.dtype)

    def step(carry: tuple[Array, Array, Array, Array], _: None) -> tuple[tuple[Array, Array, Array, Array], None]:
        rows, whole, best, smallest = carry
        channel = jnp.argmax(jnp.max(jnp.abs(rows), axis=0))
        swapped = jnp.where(own == channel, 0, jnp.where(own == 0, channel, own))
        turn = base[swapped][:, swapped]
        rows, whole = exact_matmul(rows, turn), exact_matmul(whole, turn)
        peak = jnp.max(jnp.abs(rows))
        return (rows, whole, jnp.where(peak < smallest, whole, best), jnp.minimum(peak, smallest)), None

    start = (rows, identity, identity, jnp.max(jnp.abs(rows)))
    (_, _, best, _), _ = jax.lax.scan(step, start, None, length=_STEPS)
    # Rounding adds up over the steps; this squares what the product is off from a rotation.
    return exact_matmul(best, 1.5 * identity - 0.5 * exact_matmul(best.T, best))


def zigzag_order(size: Float[Array, " column"], block: int) -> Int[Array, " column"]:
    """Channels dealt out to blocks by size: the largest ones from the first block to the last, the next ones back, and so on.

    Args:
        block: static; divides the channels.
    """
    dealt = jnp.argsort(-size).reshape(block, -1)
    back = jnp.arange(block)[:, None] % 2 == 1
    return jnp.where(back, dealt[:, ::-1], dealt).T.reshape(-1)


@functools.cache
def _base(size: int) -> np.ndarray:
    """An orthogonal matrix whose first row has equal elements."""
    columns = np.random.default_rng(_SEED).standard_normal((size, size))
    columns[:, 0] = 1.0
    turned = np.linalg.qr(columns)[0].T
    return turned * np.sign(turned[0, 0])
