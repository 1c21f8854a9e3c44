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

from typing import ClassVar

import flax.struct
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.chip.hardware import HardwareBlock, Technology
from hwmodels.compute.products import products_of, with_products
from hwmodels.compute.unit import SingleKernel, UnitTimes, WholePasses
from hwmodels.device import Device
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from hwmodels.network.operators.work import OperatorWork
from hwmodels.numerics.axes import same_rank, with_rank
from hwmodels.numerics.fields import POSITIVE, number
from hwmodels.numerics.folds import smooth_folds
from hwmodels.numerics.scalars import Leaf, Number, as_float, with_last_axis

__all__ = ["DIMENSIONS", "SPREADS", "VectorArray", "assignment_cycles"]

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
    frequency_hz: Leaf = number(POSITIVE)  # > 0

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
