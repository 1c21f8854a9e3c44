"""Weight formats of a GPU's kernels: the fitted numbers of each, and which kernel counts at a width that was not measured."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.compute.products import products_of
from hwmodels.network.operators.work import MATRIX_OPERATORS, OPERATORS, OperatorWork
from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = ["GemmCoefficients", "format_shares", "padded_shares", "stack_widths", "stored_at", "width_in_format"]


_MATRICES = np.array([OPERATORS.index(name) for name in MATRIX_OPERATORS], np.int32)


@flax.struct.dataclass
class GemmCoefficients:
    """The fitted numbers of one weight format, or of several stacked along a last axis "*b width"; all >= 0."""

    launch_s: Leaf  # fixed time of a launch
    split_s: Leaf  # further time where k is split over multiprocessors that would idle
    depth_s: Leaf  # further time per doubling of k
    switch_s: Leaf  # further time from vector to matrix instructions
    row_cost: (
        Leaf  # further time of streaming from vector to matrix instructions, in reads of the weights at full bandwidth
    )
    memory_efficiency: Leaf  # share of the bandwidth that streaming reaches, in (0, 1]
    compute_efficiency: (
        Leaf  # share of the peak that a large tile reaches; may exceed 1, as the soft minimum undercuts it
    )
    operand_cost: Leaf  # FLOP forgone per operand byte brought to a multiprocessor
    wave_rounding: Leaf  # share of the last, partly filled wave that is waited for, in [0, 1]
    sag_exponent: Leaf
    prologue_elements: Leaf  # time of a tile before its first product, in elements of k
    pass_cost: Leaf = 0.0  # time of quantizing activations, in reads of them at 16 bits and full bandwidth
    pass_elements: Leaf = 0.0  # further elements of each row that quantizing it takes as long as
    host_s: Leaf = 0.0  # time of the host for a product, which no graph replays; 0 where one does
    host_rows_s: Leaf = 0.0  # further time of the host where rows are many
    reread_cost: Leaf = 0.0  # reads of operands beyond the cache by bands of 256 rows and columns, at full bandwidth
    #: Not fitted: the second-level cache that these are read past; 0 where nothing is.
    cache_bytes: Leaf = 0.0
    #: Not fitted, but of the format: bytes of an activation as multiplied, and the data sheet's rate over that of 16 bits.
    activation_bytes: Leaf = 2.0
    arithmetic_rate: Leaf = 1.0


def stack_widths(formats: Sequence[GemmCoefficients]) -> GemmCoefficients:
    """Coefficients of several formats (leaves "*b") as one tree with leaves "*b width", in the order given."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf, float) for leaf in leaves], axis=-1), *formats)


def width_in_format(widths: Sequence[float], index: int, weight_bits: Number) -> Float[Array, "*b"]:
    """Bits per weight at which a format's kernel is timed for weights of `weight_bits`: its own width as a rule.

    The narrowest format's bytes are scaled below its width, the widest one's above.

    Args:
        widths: static, increasing; of the formats.
        index: static; of the format.
        weight_bits: "*b", >= 0.
    """
    bits = jnp.asarray(as_float(weight_bits))
    if len(widths) == 1:
        return bits
    if index == 0:
        return jnp.minimum(bits, widths[0])
    if index == len(widths) - 1:
        return jnp.maximum(bits, widths[-1])
    return jnp.full_like(bits, widths[index])


def format_shares(
    widths: Sequence[float], weight_bits: Number, times: Float[Array, "*b format"]
) -> Float[Array, "*b format"]:
    """How much each format's kernel counts at a width, so that the mixed time never rises when bits fall.

    At a measured width it is that format's kernel, or a wider one's where that is faster: weights can always be stored
    wider, which is what an engine does for many tokens, where unpacking costs more than reading. Between two measured
    widths the time goes from one to the other in proportion to the bits.

    Args:
        widths: static, increasing; of the formats.
        weight_bits: "*b", >= 0.
        times: "*b format", of each format's kernel at `width_in_format`.
    Returns:
        "*b format", in [0, 1], summing to 1; the time is the sum of shares times times.
    Gradient: by `weight_bits` right but for kinks at the measured widths; none by the times, as the choice of a kernel is
        piecewise constant.
    """
    # Format by format, not over an axis of them: the compiler makes one vectorised pass over the batch of it.
    count, seconds = len(widths), jnp.unstack(times, axis=-1)
    zero, one = jnp.zeros_like(seconds[0]), jnp.ones_like(seconds[0])
    own = [[one if place == index else zero for place in range(count)] for index in range(count)]
    least, chosen = seconds[-1], [own[-1]]
    for index in range(count - 2, -1, -1):
        keeps = seconds[index] <= least
        chosen.insert(0, [jnp.where(keeps, *both) for both in zip(own[index], chosen[0], strict=True)])
        least = jnp.where(keeps, seconds[index], least)
    bits = jnp.asarray(as_float(weight_bits))
    shares = chosen[0]
    for index, (low, high) in enumerate(itertools.pairwise(widths)):
        position = jnp.clip((bits - low) / (high - low), 0.0, 1.0)
        shares = [
            share + position * (upper - lower)
            for share, lower, upper in zip(shares, chosen[index], chosen[index + 1], strict=True)
        ]
    return jnp.stack(shares, axis=-1)


def stored_at(work: OperatorWork, bits: Float[Array, "... operator"]) -> OperatorWork:
    """The same work with each stored matrix read at other bits per weight."""
    shapes = products_of(work)
    m = _MATRICES
    elements = (shapes.k * shapes.n * shapes.products)[..., m] * work.launches[..., m]
    as_given = bits[..., m] == shapes.weight_bits[..., m]
    moved = jnp.where(as_given, work.weight_bytes[..., m], elements * (bits[..., m] / BITS_PER_BYTE))
    weight_bytes = jnp.broadcast_to(work.weight_bytes, bits.shape).at[..., m].set(moved)
    return dataclasses.replace(work, weight_bytes=weight_bytes, shapes=dataclasses.replace(shapes, weight_bits=bits))


def padded_shares(
    widths: tuple[float, ...], bits: Float[Array, "... operator"], total_s: Float[Array, "... operator kernel"]
) -> list[Float[Array, "... operator"]]:
    """Of each kernel: `format_shares` among the first, one for each width; the others do not count.

    Args:
        widths: of the formats, at most as many as kernels.
        bits: per weight.
        total_s: seconds of each kernel.
    """
    shares = list(jnp.unstack(format_shares(widths, bits, total_s[..., : len(widths)]), axis=-1))
    return shares + [jnp.zeros_like(shares[0])] * (total_s.shape[-1] - len(widths))
