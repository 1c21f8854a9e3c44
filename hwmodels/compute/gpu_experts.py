"""Routed experts of a layer on a GPU: one launch of grouped products, which fill the multiprocessors together.

A layer's tokens make R choices of experts and touch X different ones. Gate and up, then down, are each one grouped product of
R x k activations by X matrices of k x n weights. In seconds,

    t      = launch_s + sum over both of pass_cost · R k a / bandwidth + (memory^4 + arithmetic^4)^(1/4)
    memory = (X n k w + activations) / (memory_efficiency · bandwidth)         w, a: bytes per weight, per activation
    arithmetic = max(soft minimum over tilings of waves · tile · (k + prologue), 2 R n k / peak)
    waves  = w' + wave_rounding · (ceil(w') - w'),   w' = X · rows(R / X) · ceil(n / Tn) / multiprocessors
    rows(m) = 1 + q - q / (2 (q + 3)),   q = m / Tm
    tile   = sqrt((compute_cost · 2 Tm Tn)^2 + (operand_cost · (a Tm + w Tn))^2) · multiprocessors / peak

over the tilings Tm in 16, 32, 64, 128; Tn in 64, 128, 256. What the terms are for: launch_s is everything that starts once
per layer (choosing experts, sorting tokens, both products, adding up); pass_cost the kernels of their own that gather tokens
and apply the gate, in reads of a product's input at full bandwidth; X is what a step reads of the weights, so that a
memory-bound launch takes the time of the touched experts. Tiles of all experts are dealt to the multiprocessors together, and
only the last wave is rounded. Loads of experts are uneven: rows(m) is the mean number of tiles that cover an expert's rows
where a layer's experts have m on average: one for few rows, and half a tile more than their share for many.

Some engines expand packed weights before they multiply: w is then at least `read_bits`, whatever is stored.

Where other devices hold a part of the experts, R and X are this device's own. Some engines' kernels still pass over the
choices of all experts, whose rows they keep: `passed_elsewhere` is 1 then, and R of pass_cost is that of all devices.

Six numbers per weight format are fitted. `compute_cost` belongs to packed weights, whose `prologue_elements` is 0; at 16 bits
the operands alone decide how fast a tile is, and the peak is the floor.

Source: form and constants chosen on the moe tables of aiconfigurator-core 0.12.0 for the H200; numbers by
`experiments.silicon`.
Departs: beyond R and X it does not count which expert has how many rows. Even loads, as no router gives, take up to 20 % less
time than this from 2000 tokens on.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.compute.tile_counts import Ceiling, exact_ceiling, of_tilings, products_of, soft_minimum, tile_counts
from hwmodels.network.operators.work import MATRIX_OPERATORS, OPERATORS, OperatorWork
from hwmodels.numerics.folds import smooth_ceil_div
from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.numerics.smoothing import smooth_maximum
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = [
    "ExpertCoefficients",
    "GemmCoefficients",
    "GpuExperts",
    "expert_layer_time",
    "format_shares",
    "padded_shares",
    "stack_widths",
    "stored_at",
    "width_in_format",
]

# Weight formats of a GPU's kernels: the fitted numbers of each, and which kernel counts at a width that was not measured.

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


_TILE_ROWS, _TILE_COLUMNS = (16.0, 32.0, 64.0, 128.0), (64.0, 128.0, 256.0)
_ACTIVATION_BYTES = 2.0
#: Tiles of rows at which an expert's last tile is midway between whole and half, see `rows` above.
_UNEVEN_TILES = 3.0


@flax.struct.dataclass
class ExpertCoefficients:
    """The fitted numbers of one weight format, "*b"; all >= 0, and one of the tile's two costs > 0."""

    launch_s: Leaf  # of a layer's experts, all kernels together
    pass_cost: Leaf  # kernels beside the products, in reads of the products' inputs at full bandwidth
    memory_efficiency: Leaf  # share of the bandwidth that streaming reaches, in (0, 1]
    operand_cost: Leaf  # FLOP forgone per operand byte brought to a multiprocessor
    compute_cost: Leaf  # time of a large tile's arithmetic, unpacking included, in times at peak
    prologue_elements: Leaf  # time of a tile before its first product, in elements of k
    wave_rounding: Leaf  # share of the last, partly filled wave that is waited for, in [0, 1]
    #: Not fitted, a property of the kernel: 1 if it passes over the choices of experts on other devices too, 0 if not.
    passed_elsewhere: float = flax.struct.field(pytree_node=False, default=0.0)
    #: Likewise: bits per weight that it reads at least, where an engine expands stored weights before it multiplies.
    read_bits: float = flax.struct.field(pytree_node=False, default=0.0)


@flax.struct.dataclass
class GpuExperts:
    """A GPU's data sheet and the coefficients of one weight format; leaves "*b"."""

    peak_flops_per_s: Leaf  # dense 16-bit matrix products of the data sheet, > 0; a multiply-add counts 2
    bandwidth_bytes_per_s: Leaf  # of the data sheet, > 0
    multiprocessors: Leaf  # > 0
    coefficients: ExpertCoefficients
    #: Of the smooth maximum that joins arithmetic and memory; the coefficients were fitted with it.
    overlap_temperature: float = flax.struct.field(pytree_node=False, default=0.25)

    def product_time(
        self,
        m: Number,
        k: Number,
        n: Number,
        *,
        products: Number,
        weight_bits: Number = 16.0,
        temperature: Number = 0.0,
    ) -> Float[Array, "*b"]:
        """Seconds of arithmetic alone of one grouped product.

        Args:
            m: "*b", > 0, real; rows per expert on average.
            k, n: "*b", > 0, real; of one expert's matrix.
            products: "*b", >= 0, real; experts that have rows.
            weight_bits: "*b", > 0.
            temperature: "*b", in [0, 1]; 0 counts waves and tiles of columns exactly, above they are smooth. A Python 0 is
                faster than a traced one.
        Returns:
            "*b", at least 2 m n k products / peak, increasing in every argument.
        Gradient: continuous at temperature > 0, but for a kink where the peak is reached. At 0 the counts are constants.
        """
        m, k, n, products, bits = (jnp.asarray(as_float(value)) for value in (m, k, n, products, weight_bits))
        peak, processors = as_float(self.peak_flops_per_s), as_float(self.multiprocessors)
        c = self.coefficients
        exact = isinstance(temperature, (int, float)) and temperature == 0
        ceiling: Ceiling = exact_ceiling if exact else lambda one, other: smooth_ceil_div(one, other, temperature)
        per_element = (k + as_float(c.prologue_elements)) / peak

        def tiling_time(row_tile: tuple[Leaf], column_tile: tuple[Leaf, Leaf]) -> Leaf:
            (rows,), (columns, tiles_of_columns) = row_tile, column_tile
            share = m / rows
            row_tiles = products * (1.0 + share - share / (2.0 * (share + _UNEVEN_TILES)))
            arithmetic = as_float(c.compute_cost) * (2.0 * rows * columns)
            operands = as_float(c.operand_cost) * (_ACTIVATION_BYTES * rows + bits * (columns / BITS_PER_BYTE))
            tiles = row_tiles * tiles_of_columns
            # Waves times multiprocessors, so that nothing is divided twice.
            filled = ceiling(tiles, processors) * processors
            occupied = tiles + as_float(c.wave_rounding) * (filled - tiles)
            return occupied * jnp.sqrt(arithmetic * arithmetic + operands * operands) * per_element

        row_tiles = [(rows,) for rows in _TILE_ROWS]
        times = of_tilings(tiling_time, row_tiles, tile_counts(ceiling, n, _TILE_COLUMNS))
        some = products > 0
        # Nothing to compute takes no time; the soft minimum divides by its times.
        times = [jnp.where(some, time, 1.0) for time in times]
        return jnp.where(some, jnp.maximum(soft_minimum(times), 2.0 * m * n * k * products / peak), 0.0)

    def pass_time(self, m: Number, k: Number, *, products: Number, choices: Number = 0.0) -> Float[Array, "*b"]:
        """Seconds of the kernels that write a grouped product's input, which overlap with nothing.

        Args:
            m, k, products: as above.
            choices: "*b", >= 0; of experts on all devices, where others hold some. Gradient: a kink where all are here.
        """
        m, k, products, choices = (jnp.asarray(as_float(value)) for value in (m, k, products, choices))
        own = m * products
        rows = own + self.coefficients.passed_elsewhere * jnp.maximum(choices - own, 0.0)
        read_s = _ACTIVATION_BYTES * rows * k / as_float(self.bandwidth_bytes_per_s)
        return as_float(self.coefficients.pass_cost) * read_s


def expert_layer_time(
    unit: GpuExperts,
    *,
    tokens: Number,
    touched: Number,
    experts_per_token: Number,
    hidden_size: Number,
    inner_size: Number,
    gated: Number = 1.0,
    own_share: Number = 1.0,
    weight_bits: Number = 16.0,
    temperature: Number = 0.0,
) -> Float[Array, "*b"]:
    """Seconds of one layer's routed experts: what the coefficients were fitted to, and what a step takes per layer.

    Args:
        unit: leaves "*b".
        tokens: "*b", > 0; of all sequences.
        touched: "*b", > 0; different experts that they choose.
        experts_per_token, hidden_size, inner_size: "*b", > 0.
        gated: "*b"; 1: gate and up are one product of twice the columns; 0: up alone.
        own_share: "*b", in (0, 1]; of the tokens' choices, those of experts on this device, as is `touched`.
        weight_bits: "*b", > 0.
        temperature: as of `GpuExperts.product_time`.
    Returns:
        "*b", increasing in tokens, in touched experts, and in bits.
    Gradient: as `GpuExperts.product_time`.
    """
    tokens, touched, chosen, hidden, inner, gated, share, bits = (
        jnp.asarray(as_float(value))
        for value in (tokens, touched, experts_per_token, hidden_size, inner_size, gated, own_share, weight_bits)
    )
    bits = jnp.maximum(bits, unit.coefficients.read_bits)
    everywhere = tokens * chosen
    choices = everywhere * share
    bandwidth = as_float(unit.coefficients.memory_efficiency) * as_float(unit.bandwidth_bytes_per_s)
    total = as_float(unit.coefficients.launch_s)
    # Activations as the step counts them: hwmodels.network.operators.step.
    down_moved = choices * (inner + 2.0 * hidden) + 2.0 * tokens * hidden
    for k, n, moved in (
        (hidden, (1.0 + gated) * inner, choices * (hidden + inner)),
        (inner, hidden, down_moved),
    ):
        rows = choices / touched
        arithmetic = unit.product_time(rows, k, n, products=touched, weight_bits=bits, temperature=temperature)
        memory = (touched * k * n * (bits / BITS_PER_BYTE) + _ACTIVATION_BYTES * moved) / bandwidth
        times = jnp.stack(jnp.broadcast_arrays(arithmetic, memory), axis=-1)
        passes = unit.pass_time(rows, k, products=touched, choices=everywhere)
        total = total + passes + smooth_maximum(times, unit.overlap_temperature)
    return total
