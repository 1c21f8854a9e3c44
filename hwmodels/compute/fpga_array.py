"""An FPGA's array of processing elements, as FlightLLM arranges them for decoding.

A processing element (PE) multiplies one weight by one activation per cycle, more if it holds several multipliers. Rows of
PEs lie over the summed dimension k, columns over the outputs n. In its vector mode the whole array works on one token at a
time, so that x tokens take x times as long: the processing rate r behind the compute roof P_max = 1 / r. In its matrix mode
the columns are split into groups, each with a token of its own: with fewer tokens than groups the others idle, so this pays
only from as many tokens up as there are groups, and more than the vector mode only where n does not fill the columns.

    seconds = ceil(m / groups) * ceil(k / rows) * ceil(n / (columns / groups)) / frequency

Source: "Boosting the Performance of Tree-Based Speculative Decoding of LLMs on FPGAs", III-A, Eq. (1), Table IV.
Departs: the paper gives the sides of the arrays, no more. Which side lies over k and which over n, both modes, and one 16-bit
    product per PE and cycle are ours; at 225 MHz that puts the compute roof of 16-bit Llama-3.1-8B where Table IV has the best
    verification lengths of short contexts, on three boards of four (U250 is bound by memory beyond them).
"""

from __future__ import annotations

from typing import ClassVar

import flax.struct
from jaxtyping import Array, Float

from hwmodels.chip.blocks import HardwareBlock, Technology
from hwmodels.compute.tile_counts import at_one_depth, with_products
from hwmodels.compute.unit import SingleKernel, UnitTimes, WholePasses
from hwmodels.compute.weight_layouts import share_narrower
from hwmodels.device import Device
from hwmodels.network.architecture import UNCOMPRESSED_BITS
from hwmodels.network.operators.work import OperatorWork
from hwmodels.numerics.fields import FREQUENCY, POSITIVE, SHARE, number
from hwmodels.numerics.folds import smooth_folds
from hwmodels.numerics.scalars import Leaf, Number, as_float, same_rank, with_last_axis

__all__ = ["FpgaArray"]


@flax.struct.dataclass
class FpgaArray(WholePasses, SingleKernel):
    """A grid of processing elements. Every field is a leaf, "*b"."""

    short_title: ClassVar[str] = "FPGA array"
    title: ClassVar[str] = "an FPGA's array of multiply-add elements"

    rows: Leaf = number(POSITIVE)  # PEs over k, >= 1
    columns: Leaf = number(POSITIVE)  # PEs over n, >= 1
    frequency_hz: Leaf = number(FREQUENCY)  # > 0
    macs_per_pe: Leaf = number(POSITIVE, default=1.0)  # 16-bit products of a PE in a cycle, summed within it, > 0
    packing: Leaf = number(
        POSITIVE, default=1.0
    )  # narrow weights that share a multiplier, each for another output, >= 1
    packed_below_bits: Leaf = number(
        POSITIVE, default=10.0
    )  # weights of fewer stored bits are packed; 10 admits 8-bit ones with their scales
    parallel_tokens: Leaf = number(
        POSITIVE, default=1.0
    )  # tokens side by side, each with its share of the columns, in [1, columns]
    efficiency: Leaf = number(
        SHARE, default=1.0
    )  # share of the cycles in which the array does not wait for itself, in (0, 1]

    @property
    def elements(self) -> Leaf:
        """Multipliers of all PEs, "*b": what `Chip.element_area_m2` is the area of one of."""
        return as_float(self.rows) * as_float(self.columns) * as_float(self.macs_per_pe)

    def hardware(self, device: Device, technology: Technology) -> tuple[HardwareBlock, ...]:
        """All multipliers, of an FPGA's cells."""
        del device, technology
        return (HardwareBlock(macs=self.elements, frequency_hz=self.frequency_hz, fpga=True),)

    @property
    def peak_flops_per_s(self) -> Leaf:
        """Rate with all PEs busy on the narrowest weights, "*b"; a multiply-add counts 2."""
        return 2.0 * _macs_per_s(self, as_float(self.packing))

    def product_time(
        self, m: Number, k: Number, n: Number, *, weight_bits: Number = UNCOMPRESSED_BITS, temperature: Number = 0.0
    ) -> Float[Array, "*b"]:
        """Seconds of arithmetic of an m x k by k x n product.

        Args:
            m, k, n: "*b", > 0, real; m counts tokens.
            weight_bits: "*b", > 0; bits stored per weight, which decide on packing only.
            temperature: "*b", in [0, 1], of the tile counts and of the limit of packing; 0 is exact.
        Returns:
            "*b", s; proportional to m (Eq. 14) where rows and columns divide the sizes, more elsewhere.
        Gradient: right for every input; at temperature 0 the tile counts are constants, also over m: see `smooth_folds`.
        """
        array, m, k, n, weight_bits, temperature = same_rank(self, m, k, n, weight_bits, temperature)
        packing = _packing(array, weight_bits, temperature)
        columns = as_float(array.columns) / as_float(array.parallel_tokens) * packing
        passes = smooth_folds(m, array.parallel_tokens, temperature)
        row_folds = smooth_folds(k, as_float(array.rows) * as_float(array.macs_per_pe), temperature)
        column_folds = smooth_folds(n, columns, temperature)
        cycles_per_s = as_float(array.frequency_hz) * as_float(array.efficiency)
        return passes * row_folds * column_folds / cycles_per_s

    def operator_times(self, work: OperatorWork, device: Device, *, temperature: Number = 0.0) -> UnitTimes:
        """Products as `product_time` has them, everything else at the device's roofline; see `ComputeUnit`."""
        unit, shapes = with_last_axis(self), at_one_depth(work)
        seconds = unit.product_time(
            shapes.m, shapes.k, shapes.n, weight_bits=shapes.weight_bits, temperature=as_float(temperature)
        )
        return with_products(work, device, product_s=seconds)


def _packing(array: FpgaArray, weight_bits: Number, temperature: Number) -> Float[Array, "*b"]:
    narrow = share_narrower(weight_bits, array.packed_below_bits, temperature)
    return 1.0 + (as_float(array.packing) - 1.0) * narrow


def _macs_per_s(array: FpgaArray, packing: Leaf) -> Leaf:
    pes = as_float(array.rows) * as_float(array.columns)
    return pes * as_float(array.macs_per_pe) * packing * as_float(array.frequency_hz)
