"""A grid of processing elements (PEs) with vector multipliers, such as Simba: the grid and its multipliers.

Each PE has some vector MACs, each of which multiplies a vector of inputs with one column of its weights and adds up: in one
cycle a PE works on 1 row of inputs, `vector_width` places along k and `vector_macs` columns of n. The two sides of the grid
are laid along m, k or n, both along the same or each along another; a product takes the best of the nine ways:

    cycles = ceil(m / M) * ceil(k / (vector_width * K)) * ceil(n / (vector_macs * N)),    M * K * N = rows * columns

Source: Huff-LLM, 2.2 and the table Simba_specs.
Departs: on a device, operands stream from memory once, whatever the buffers hold. What moves to and from DRAM, and how products
    are cut so that tiles fit, is `hwmodels.compute.vector_mapping`.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import flax.struct
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.chip.blocks import HardwareBlock, Technology
from hwmodels.compute.tile_counts import products_of, with_products
from hwmodels.compute.unit import SingleKernel, UnitTimes, WholePasses
from hwmodels.compute.weight_layouts import LAYOUTS
from hwmodels.device import Device
from hwmodels.network.architecture import UNCOMPRESSED_BITS
from hwmodels.network.operators.work import OperatorWork
from hwmodels.numerics.fields import FREQUENCY, NOT_NEGATIVE, POSITIVE, number, tag, variant
from hwmodels.numerics.folds import smooth_ceil_div, smooth_folds
from hwmodels.numerics.scalars import Leaf, Number, as_float, same_rank, with_last_axis, with_rank

__all__ = [
    "DIMENSIONS",
    "EXPONENTIALS",
    "SPREADS",
    "GatheredTable",
    "Polynomial",
    "VectorArray",
    "VectorUnits",
    "assignment_cycles",
    "dequantization_time",
    "polynomial_steps",
    "softmax_time",
    "taylor_degree",
]

# How a vector unit takes the exponentials of a register of 16-bit scores: from a table on chip, or by a polynomial.

#: Steps beside Horner's: k of x, f = x - k, and adding k to the exponent field.
_OTHER_STEPS = 3


@flax.struct.dataclass
class GatheredTable:
    """A table on chip."""

    gather_packets: Leaf = number(POSITIVE)  # that a unit waits for a gather, > 0
    table_bytes: Leaf = number(NOT_NEGATIVE)  # >= 0
    kind: str = tag("gathered_table")

    @property
    def register_packets(self) -> Leaf:
        """A gather."""
        return as_float(self.gather_packets)

    @property
    def on_chip_bytes(self) -> Leaf:
        """The table."""
        return as_float(self.table_bytes)


@flax.struct.dataclass
class Polynomial:
    """A chain of steps."""

    steps: Leaf = number(POSITIVE)  # one after the other, see `polynomial_steps`, > 0
    step_packets: Leaf = number(POSITIVE)  # from a step to the next one that needs it, > 0
    kind: str = tag("polynomial")

    @property
    def register_packets(self) -> Leaf:
        """All steps."""
        return as_float(self.steps) * as_float(self.step_packets)

    @property
    def on_chip_bytes(self) -> Leaf:
        """Nothing."""
        return 0.0


#: kind of a device's file -> its class.
EXPONENTIALS = {"gathered_table": GatheredTable, "polynomial": Polynomial}


def taylor_degree(significand_bits: int) -> int:
    """Least degree of the Taylor polynomial of 2^f, f in [0, 1), whose first omitted term is below 2^-significand_bits.

    Args:
        significand_bits: static int >= 1, the hidden one included: 11 in float16, 24 in float32.
    Raises:
        ValueError: significand_bits < 1.
    Source: mobile NPU, 5.2.1 (the fractional part, a Taylor polynomial); the degree is ours.
    """
    if significand_bits < 1:
        raise ValueError(f"significand_bits is {significand_bits}; it must be >= 1")
    degree, term = 0, math.log(2.0)
    while term >= 2.0**-significand_bits:
        degree += 1
        term *= math.log(2.0) / (degree + 1)
    return degree


def polynomial_steps(significand_bits: int) -> int:
    """Steps of an exponential, one after the other: Horner's, and three for splitting x and putting it together again."""
    return taylor_degree(significand_bits) + _OTHER_STEPS


# Vector units beside a matrix unit: converting quantized weights, and the softmax of attention.


@flax.struct.dataclass
class VectorUnits:
    """Vector units that share the work evenly. Every field is a leaf, "*b", or a tree of leaves."""

    units: Leaf = number(POSITIVE)  # that work at the same time, > 0
    packets_per_s: Leaf = number(POSITIVE)  # instruction packets that one of them issues in a second, > 0
    register_scores: Leaf = number(POSITIVE)  # 16-bit scores of a register, >= 1
    score_packets: Leaf = number(NOT_NEGATIVE)  # of a softmax per register, beside its exponentials, >= 0
    row_packets: Leaf = number(NOT_NEGATIVE)  # of a softmax per row, rows one after the other, >= 0
    layout: Any = variant(LAYOUTS)  # a hwmodels.compute.weight_layouts.WeightLayout
    exponential: Any = variant(EXPONENTIALS)  # with `register_packets` and `on_chip_bytes`
    power_w: Leaf = number(
        NOT_NEGATIVE, default=None
    )  # of all units at work, >= 0; None: in the chip's energy per FLOP


def dequantization_time(
    vector: VectorUnits, weights: Number, *, weight_bits: Number, temperature: Number = 0.0
) -> Float[Array, "*b"]:
    """Seconds to convert quantized weights to what the matrix unit takes.

    Args:
        vector: leaves "*b".
        weights: "*b", >= 0.
        weight_bits: "*b", > 0; bits stored per weight, scales included.
        temperature: "*b", in [0, 1], of the bits of a code; 0 is exact.
    Gradient: right for every input; at temperature 0 the bits of a code are constant.
    Source: mobile NPU, 5.1, 5.2.2.
    """
    packets = vector.layout.packets(weights, weight_bits=weight_bits, temperature=temperature)
    return packets / (as_float(vector.units) * as_float(vector.packets_per_s))


def softmax_time(
    vector: VectorUnits, rows: Number, columns: Number, *, temperature: Number = 0.0
) -> Float[Array, "*b"]:
    """Seconds of the softmax of one head: a row for each query, a column for each key that it sees.

    Args:
        vector: leaves "*b".
        rows, columns: "*b", > 0, real.
        temperature: "*b", in [0, 1], of the number of registers and of rounds of rows; 0 is exact.
    Gradient: right for every input; at temperature 0 the two numbers are constants.
    Source: mobile NPU, 5.2.1: exponentials of all queries times all keys, a register of 64 of them at a time.
    """
    rounds = smooth_ceil_div(rows, vector.units, temperature)
    registers = smooth_ceil_div(columns, vector.register_scores, temperature)
    each = as_float(vector.score_packets) + vector.exponential.register_packets
    packets = as_float(rows) * as_float(vector.row_packets) + rounds * registers * each
    return packets / as_float(vector.packets_per_s)


#: Dimensions of a product: rows of the inputs (tokens), the summed one, columns of the weights.
DIMENSIONS = ("m", "k", "n")

#: All ways to lay the grid: the dimension along its rows, that along its columns.
SPREADS = tuple((rows, columns) for rows in DIMENSIONS for columns in DIMENSIONS)

_ROWS_ALONG = np.array([[d == rows for d in DIMENSIONS] for rows, _ in SPREADS])
_COLUMNS_ALONG = np.array([[d == columns for d in DIMENSIONS] for _, columns in SPREADS])


@flax.struct.dataclass
class VectorArray(WholePasses, SingleKernel):
    """Processing elements with vector MACs. Every field is a leaf, "*b"."""

    short_title: ClassVar[str] = "vector array"
    title: ClassVar[str] = "an array of vector elements"

    pe_rows: Leaf = number(POSITIVE)  # >= 1
    pe_columns: Leaf = number(POSITIVE)  # >= 1
    vector_macs: Leaf = number(POSITIVE)  # in a PE, each for another column of the weights, >= 1
    vector_width: Leaf = number(POSITIVE)  # products that one of them adds up in a cycle, >= 1
    frequency_hz: Leaf = number(FREQUENCY)  # > 0

    @property
    def elements(self) -> Leaf:
        """Multipliers of all PEs, "*b": what `Chip.element_area_m2` is the area of one of."""
        pes = as_float(self.pe_rows) * as_float(self.pe_columns)
        return pes * as_float(self.vector_macs) * as_float(self.vector_width)

    def hardware(self, device: Device, technology: Technology) -> tuple[HardwareBlock, ...]:
        """All multipliers at the grid's clock."""
        del device, technology
        return (HardwareBlock(macs=self.elements, frequency_hz=self.frequency_hz),)

    @property
    def peak_flops_per_s(self) -> Leaf:
        """Rate with all multipliers busy, "*b"; a multiply-add counts 2."""
        return 2.0 * self.elements * as_float(self.frequency_hz)

    def product_time(
        self, m: Number, k: Number, n: Number, *, weight_bits: Number = UNCOMPRESSED_BITS, temperature: Number = 0.0
    ) -> Float[Array, "*b"]:
        """Seconds of arithmetic of an m x k by k x n product, with the grid laid in the best way.

        Args:
            m, k, n: "*b", > 0, real.
            weight_bits: not used: weights are multiplied in full width.
            temperature: "*b", in [0, 1], of the counts; 0 is exact.
        Returns:
            "*b", s.
        Gradient: that of the best way; a kink where two are as good. At temperature 0 the counts are constants: see
            `smooth_folds`.
        """
        del weight_bits
        return jnp.min(assignment_cycles(self, m, k, n, temperature), axis=-1) / as_float(self.frequency_hz)

    def operator_times(self, work: OperatorWork, device: Device, *, temperature: Number = 0.0) -> UnitTimes:
        """Products as `product_time` has them, everything else at the device's roofline; see `ComputeUnit`."""
        unit, shapes = with_last_axis(self), products_of(work)
        seconds = unit.product_time(
            shapes.m, shapes.k, shapes.n, weight_bits=shapes.weight_bits, temperature=as_float(temperature)
        )
        return with_products(work, device, product_s=seconds)


def assignment_cycles(
    array: VectorArray, m: Number, k: Number, n: Number, temperature: Number = 0.0
) -> Float[Array, "*b spread"]:
    """Cycles of a product for each of the ways in `SPREADS` to lay the grid.

    Args:
        array: leaves "*b".
        m, k, n: "*b", > 0, real.
        temperature: "*b", in [0, 1], of the counts; 0 is exact.
    Returns:
        "*b spread", each at least m k n over the number of multipliers.
    """
    leaves = (1.0, array.vector_width, array.vector_macs, array.pe_rows, array.pe_columns, m, k, n, temperature)
    leaves = same_rank(*(jnp.asarray(as_float(x))[..., None] for x in leaves))
    one, width, macs, rows, columns, m, k, n, temperature = leaves
    along = lambda which, side: jnp.where(with_rank(which, side.ndim), side, 1.0)
    tiles = with_rank(jnp.ones(len(SPREADS)), one.ndim)
    for d, (extent, step) in enumerate(((m, one), (k, width), (n, macs))):
        step = step * along(_ROWS_ALONG[:, d], rows) * along(_COLUMNS_ALONG[:, d], columns)
        tiles = tiles * smooth_folds(extent, step, temperature)
    return tiles
