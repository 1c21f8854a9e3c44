"""Weights in two levels of integers: 8 bits per row, and within these 4 bits per group, with whole numbers as scales.

Source: QoQ, Lin et al. 2024, arXiv:2405.04532: progressive group quantization (Section 4.1); rotated inputs of blocks, smoothed
inputs of `o` and `down`, channels in the order of their sizes, clipped ranges (Section 4.3). Powers of smoothing are those of
the authors' program.
Departs: a group is clipped by the error that norms of input channels weigh; the paper measures that of outputs. Channels of
`o`, which a layer can reorder only within a head, keep their order: a group of 128 has whole heads in nearly all networks.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from jaxspec.compress.fitted.smoothing import input_scale
from jaxspec.compress.footprint import BitsPerValue
from jaxspec.compress.schemes.interface import CompressedMatrix
from jaxspec.formats.group_quantization import SCALE_BITS, to_float16
from jaxspec.models.rotated_rows import block_of, rotate_rows

__all__ = ["Smoothing", "progressive", "qoq_residual_w4", "qoq_smoothing", "qoq_w4"]

#: Bits of a code, and of a group's scale and zero point together.
_BITS, _GROUP_BITS = 4, 16

#: Largest integer of the first level: groups that are read back stay within 8 bits (the paper's protective range).
_PROTECTED = 119.0

#: Powers of the sizes of inputs and of weights; the paper: mostly by the weights.
_INPUT_POWER, _WEIGHT_POWER = 0.3, 0.7

#: Shares of a group's range that are tried. The whole range comes first, and wins a tie.
_SHARES = tuple(1 - 0.05 * step for step in range(9))


@struct.dataclass
class Smoothing:
    """What inputs are divided by, and their sizes on calibration text behind the division.

    Attributes:
        largest: of each channel; channels of like size are rounded together.
    """

    scale: Float[Array, " column"]
    largest: Float[Array, " column"]


def qoq_smoothing(largest_weight: Float[Array, " column"], sample: Float[Array, "row column"]) -> Smoothing:
    """Scales of the inputs of `o` or `down`.

    Args:
        largest_weight: of each column, in size, over all matrices that read these inputs.
        sample: of the inputs, rows of calibration text.
    """
    size = jnp.max(jnp.abs(sample), axis=0)
    scale = input_scale(size, largest_weight, input_power=_INPUT_POWER, weight_power=_WEIGHT_POWER)
    return Smoothing(scale, size / scale)


def qoq_w4(matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"]) -> CompressedMatrix:
    """Rotated rows in two levels, rotated back; groups are as long as the blocks of the rotation, 128 where these fit.

    All channels of a rotated block weigh the same.
    """
    del channel_norm
    return _compressed(rotate_rows(progressive(rotate_rows(matrix), block_of(matrix.shape[1])), back=True))


def qoq_residual_w4(
    matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"], found: Smoothing | None = None
) -> CompressedMatrix:
    """Smoothed rows in two levels, groups of channels whose inputs are of like size; both undone.

    Args:
        found: None: made of the norms alone, which suits a matrix without calibration text.
    """
    if found is None:
        found = qoq_smoothing(jnp.max(jnp.abs(matrix), axis=0), channel_norm[None])
    order = jnp.argsort(-found.largest)
    weight = jnp.square(channel_norm / found.scale)[order]
    rows = progressive((matrix * found.scale[None])[:, order], block_of(matrix.shape[1]), weight)
    return _compressed(rows[:, jnp.argsort(order)] / found.scale[None])


def _compressed(values: Float[Array, "row column"]) -> CompressedMatrix:
    columns = values.shape[1]
    bits = jnp.full((), _BITS + _GROUP_BITS / block_of(columns) + SCALE_BITS / columns)
    return CompressedMatrix(values, BitsPerValue(bits, bits))


def progressive(
    matrix: Float[Array, "row column"], group: int, weight: Float[Array, " column"] | None = None
) -> Float[Array, "row column"]:
    """What is read back of a matrix, the range of each group clipped so that the squared error is smallest.

    Args:
        group: static; elements of a row with a scale and a zero point of their own.
        weight: of each column's squared error; None: all the same.
    """
    scale = to_float16(jnp.max(jnp.abs(matrix), axis=1) / _PROTECTED).astype(matrix.dtype)[:, None]
    exact = (matrix / jnp.where(scale > 0, scale, 1.0)).reshape(len(matrix), -1, group)
    weights = jnp.ones((1, *exact.shape[1:])) if weight is None else weight.reshape(1, -1, group)
    whole = jnp.round(exact)

    def error(share: Float[Array, ""]) -> Float[Array, "row group"]:
        return jnp.sum(weights * jnp.square(_in_groups(whole, share) - exact), axis=-1)

    shares = jnp.asarray(_SHARES)
    best = shares[jnp.argmin(jax.lax.map(error, shares), axis=0)]
    return _in_groups(whole, best[..., None]).reshape(matrix.shape) * scale


def _in_groups(
    whole: Float[Array, "row group element"], share: Float[Array, "row group 1"] | Float[Array, ""]
) -> Float[Array, "row group element"]:
    """Integers of 8 bits read back from codes between the ends of each group, times a share."""
    ends = share * jnp.min(whole, axis=-1, keepdims=True), share * jnp.max(whole, axis=-1, keepdims=True)
    most = (1 << _BITS) - 1
    step = jnp.maximum(jnp.round((ends[1] - ends[0]) / most), 1.0)
    zero = jnp.round(-ends[0] / step)
    return (jnp.clip(jnp.round(whole / step) + zero, 0, most) - zero) * step
