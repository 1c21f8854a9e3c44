"""Lossy compressions fitted to calibration text, from a matrix and the norms of its inputs to its compressed form."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, Int

from hwmodels.numerics.compensated_sums import exact_matmul
from jaxspec.compress.schemes import quantized
from jaxspec.compress.schemes.quantized import NumberForm
from jaxspec.compress.schemes.scheme import CompressedMatrix
from jaxspec.compress.selection import hard_mask, log_of, wanda_score
from jaxspec.formats import asymmetric
from jaxspec.formats.group_quantization import SCALE_BITS, to_float16
from jaxspec.formats.patterns import BitsRead
from jaxspec.models.rounded_inputs import Spread, block_of, rotate_rows, spread_rows

__all__ = [
    "InputSpace",
    "Smoothing",
    "awq_int4",
    "duquant_space",
    "duquant_w4",
    "greedy_rotation",
    "input_scale",
    "key_scale",
    "progressive",
    "qoq_residual_w4",
    "qoq_smoothing",
    "qoq_w4",
    "rotated_int4",
    "scaled_rounding",
    "smoothing_scale",
    "smoothquant_w8",
    "squeezellm_4",
    "wanda_half",
    "weighted_values",
    "zigzag_order",
]


# Quantization after input channels were scaled: what is hard to round in activations or weights moves to the other side.
#
# A channel's scale multiplies its weights before rounding and divides what is read back. An engine divides the activations
# instead, by scales that it folds into whatever comes before, so that they take no room.

_INT8 = quantized.channels("int8", 8.0)
_INT4 = quantized.groups("q4_0", 4.0)

#: Powers that AWQ tries.
_POWERS = 20


def smoothquant_w8(matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"]) -> CompressedMatrix:
    """8 bits per row, after the columns were multiplied by `smoothing_scale`."""
    return scaled_rounding(matrix, _smoothing(matrix, channel_norm), _INT8)


def smoothing_scale(
    matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"]
) -> Float[Array, " column"]:
    """Roots of norm over largest weight (SmoothQuant, Eq. 4 with alpha = 1/2), brought to mean 1."""
    return _mean_one(_smoothing(matrix, channel_norm))


def _smoothing(matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"]) -> Float[Array, " column"]:
    largest = jnp.max(jnp.abs(matrix), axis=0)
    return jnp.sqrt(_positive(channel_norm) / _positive(largest))


def awq_int4(matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"]) -> CompressedMatrix:
    """4-bit groups; scales are the power of the norms, 0 to 1, whose error weighted by squared norms is the smallest."""
    norms = _positive(channel_norm)

    def error(power: Array) -> Array:
        made = scaled_rounding(matrix, norms**power, _INT4).values
        return jnp.sum(jnp.square((made - matrix) * norms[None]))

    powers = jnp.linspace(0.0, 1.0, _POWERS, endpoint=False)
    return scaled_rounding(matrix, norms ** powers[jnp.argmin(jax.lax.map(error, powers))], _INT4)


def scaled_rounding(
    matrix: Float[Array, "row column"], scale: Float[Array, " column"], form: NumberForm
) -> CompressedMatrix:
    """The matrix rounded in a form after its columns were multiplied by scales, which are brought to mean 1 first."""
    scale = _mean_one(scale)[None]
    bits = jnp.full((), form.bits(*matrix.shape))
    return CompressedMatrix(form.rounded(matrix * scale) / scale, BitsRead(bits, bits))


def key_scale(largest: Float[Array, "head element"]) -> Float[Array, " channel"]:
    """Scales of a layer's keys by channel: roots of the largest sizes (QoQ's SmoothAttention with alpha = 1/2).

    Args:
        largest: of each element of a head over calibration text; of both elements of a rotary plane the larger.
    Source: Lin et al. 2024, arXiv:2405.04532, Section 4.2.
    """
    return _mean_one(jnp.sqrt(_positive(largest.reshape(-1))))


def input_scale(
    size: Float[Array, " column"], largest_weight: Float[Array, " column"], *, input_power: float, weight_power: float
) -> Float[Array, " column"]:
    """What inputs are divided by, brought to mean 1: powers of their sizes over powers of the weights that read them."""
    return _mean_one(_positive(size) ** input_power / _positive(largest_weight) ** weight_power)


def _mean_one(scale: Float[Array, " column"]) -> Float[Array, " column"]:
    """The scales with a geometric mean of 1."""
    return scale / jnp.exp(jnp.mean(jnp.log(scale)))


def _positive(numbers: Float[Array, " column"]) -> Float[Array, " column"]:
    """The numbers, those near 0 lifted: a channel that nothing flows through has no scale of its own."""
    return jnp.maximum(numbers, 1e-4 * jnp.max(numbers) + 1e-12)


# Pruning by size times input norm.


def wanda_half(matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"]) -> CompressedMatrix:
    """Half of each row's weights, those with the largest |weight| times norm; a bit says which, 16 bits hold each.

    Source: Sun et al. 2023, arXiv:2306.11695 (Wanda).
    """
    kept = hard_mask(log_of(wanda_score(matrix, channel_norm)), jnp.asarray(0.5))
    bits = 1.0 + 16.0 * jnp.mean(kept.astype(jnp.float32))
    return CompressedMatrix(jnp.where(kept, matrix, 0.0), BitsRead(bits, bits))


# Quantization of rotated rows: a rotation spreads what is large over many weights, and is undone in what is multiplied.
#
# Source: DuQuant, Lin et al. 2024, arXiv:2406.01721; QuaRot, Ashkboos et al. 2024, arXiv:2404.00456 (Hadamard
# matrices).


def rotated_int4(matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"]) -> CompressedMatrix:
    """4-bit groups of rotated rows, rotated back."""
    del channel_norm
    made = rotate_rows(_INT4.rounded(rotate_rows(matrix)), back=True)
    bits = jnp.full((), _INT4.bits(*matrix.shape))
    return CompressedMatrix(made, BitsRead(bits, bits))


# Non-uniform values: each row has its own few, where its important weights are.
#
# Source: Kim et al. 2023, arXiv:2306.07629 (SqueezeLLM).

_BITS = 4

#: Lloyd's algorithm hardly moves a value after so many rounds.
_ROUNDS = 20


def squeezellm_4(matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"]) -> CompressedMatrix:
    """4 bits per weight and 16 values of 16 bits per row."""
    importance = jnp.square(channel_norm)

    def of_row(row: Float[Array, " column"]) -> Float[Array, " column"]:
        values = weighted_values(row, importance, 1 << _BITS)
        return values[_nearest(row, values)]

    bits = jnp.full((), _BITS + 16.0 * (1 << _BITS) / matrix.shape[1])
    return CompressedMatrix(jax.lax.map(of_row, matrix), BitsRead(bits, bits))


def weighted_values(
    row: Float[Array, " column"], importance: Float[Array, " column"], count: int
) -> Float[Array, " value"]:
    """Values near which weighted numbers lie: k-means in one dimension, from quantiles on; a value that has no number stays.

    Args:
        importance: >= 0, of each number.
        count: static.
    """
    start = jnp.quantile(row, (jnp.arange(count, dtype=row.dtype) + 0.5) / count)

    def move(values: Array, _: None) -> tuple[Array, None]:
        own = jax.nn.one_hot(_nearest(row, values), count, dtype=row.dtype) * importance[:, None]
        total = own.sum(axis=0)
        return jnp.where(total > 0, exact_matmul(row, own) / jnp.where(total > 0, total, 1.0), values), None

    rounded, _ = jax.lax.scan(move, start, None, length=_ROUNDS)
    return rounded


def _nearest(row: Array, values: Array) -> Array:
    return jnp.argmin(jnp.abs(row[:, None] - values[None]), axis=1)


# Weights in two levels of integers: 8 bits per row, and within these 4 bits per group, with whole numbers as scales.
#
# Source: QoQ, Lin et al. 2024, arXiv:2405.04532: progressive group quantization (Section 4.1); rotated inputs of
# blocks, smoothed inputs of `o` and `down`, channels in the order of their sizes, clipped ranges (Section 4.3). Powers
# of smoothing are those of the authors' program.
# Departs: a group is clipped by the error that norms of input channels weigh; the paper measures that of outputs.
# Channels of `o`, which a layer can reorder only within a head, keep their order: a group of 128 has whole heads in
# nearly all networks.

#: Bits of a code, and of a group's scale and zero point together.
_GROUP_BITS = 16

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
    matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"], smoothing: Smoothing | None = None
) -> CompressedMatrix:
    """Smoothed rows in two levels, groups of channels whose inputs are of like size; both undone.

    Args:
        smoothing: None: made of the norms alone, which suits a matrix without calibration text.
    """
    if smoothing is None:
        smoothing = qoq_smoothing(jnp.max(jnp.abs(matrix), axis=0), channel_norm[None])
    order = jnp.argsort(-smoothing.largest)
    weight = jnp.square(channel_norm / smoothing.scale)[order]
    rows = progressive((matrix * smoothing.scale[None])[:, order], block_of(matrix.shape[1]), weight)
    return _compressed(rows[:, jnp.argsort(order)] / smoothing.scale[None])


def _compressed(values: Float[Array, "row column"]) -> CompressedMatrix:
    columns = values.shape[1]
    bits = jnp.full((), _BITS + _GROUP_BITS / block_of(columns) + SCALE_BITS / columns)
    return CompressedMatrix(values, BitsRead(bits, bits))


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


# Spaces in which rows have no outliers, and weights rounded in them.
#
# Source: DuQuant, Lin et al. 2024, arXiv:2406.01721: smoothing, a rotation per block that is built greedily from the
# largest element, a zigzag order of the channels, a second rotation of the same kind. Share 0.6 of smoothing, blocks of
# 128, 256 steps and the share 0.8 of weights' ranges are the paper's.
# Departs: one rotation for all blocks, as in the authors' program; the orthogonal matrix behind each step is drawn
# once.

_WEIGHT_SHARE, _SMOOTHING = 0.8, 0.6

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
    matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"], space: InputSpace | None = None
) -> CompressedMatrix:
    """4-bit asymmetric integers, one scale per row, of rows in the space of their inputs.

    Args:
        space: None: made of the norms alone, which suits a matrix without calibration text.
    """
    if space is None:
        space = duquant_space(jnp.max(jnp.abs(matrix), axis=0), channel_norm[None])
    rows = spread_rows(matrix * space.scale[None], space.space)
    rows = asymmetric.decode(asymmetric.encode(rows, _BITS, share=_WEIGHT_SHARE))
    bits = jnp.full((), asymmetric.bits_per_element(_BITS, matrix.shape[1]))
    return CompressedMatrix(spread_rows(rows, space.space, back=True) / space.scale[None], BitsRead(bits, bits))


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
