"""A GPU's library with two kernels for stored matrices: vectors for few rows, tiles for more, as MLX on Apple's GPUs.

The vector kernel reads and unpacks a block of weights and multiplies a few rows with it; more rows take further passes. It uses
no matrix instructions, so that unpacking, and loading and converting activations, cost as much as multiply-adds. From a number
of rows on, the library uses tiles, which are computed as a whole: one row more than a tile takes as long as two tiles.

    vector = (unpack_instructions ceil(m / rows_per_pass) + row_instructions m) 2 k n / peak
    tile   = (tile_rows ceil(m / tile_rows) + fill_rows) 2 k tile_columns ceil(n / tile_columns) / (tile_efficiency peak)
    time   = min(vector, tile) below switch_rows, tile from there on

An instruction takes as long as a multiply-add, two FLOPs of the peak. Both kernels take longer for more rows, and the minimum
takes no longer than tiles: so a larger product never takes less time, wherever the switch is. Where a library's switch is
late, it would use the slower vectors below it; here the tiles count.

Source: the source code of MLX 0.32, mlx/backend/metal: `qmv_wide` and `qmm_t` in kernels/quantized.h, and their choice by
    `get_qmv_batch_limit` in quantized.cpp; for 16 bits github.com/ml-explore/mlx, pull request 3888.
Departs: rows are not padded to passes of equal length (one row at most, of 7, 9 and 11). Instructions are those of one width:
    8 bits need no mask, one instruction less; narrower weights that straddle bytes need more. The switch is that of large
    packed matrices; of small ones and of 16 bits MLX's is later. Sums split over k take nothing.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import flax.struct
import numpy as np
from jaxtyping import Array, Float

from hwmodels.compute.roofline import ROOFLINE
from hwmodels.compute.tile_counts import products_of
from hwmodels.compute.unit import SingleKernel, UnitTimes
from hwmodels.compute.weight_layouts import share_narrower
from hwmodels.device import Device
from hwmodels.network.architecture import UNCOMPRESSED_BITS
from hwmodels.network.operators.work import EXPERT_OPERATORS, MATRIX_OPERATORS, OPERATORS, OperatorWork
from hwmodels.numerics.fields import NOT_NEGATIVE, POSITIVE, SHARE, number
from hwmodels.numerics.folds import smooth_ceil_div
from hwmodels.numerics.scalars import Leaf, Number, as_float, same_rank, select, with_last_axis
from hwmodels.numerics.smoothing import smooth_largest

__all__ = ["VectorTileKernels"]

_MULTIPLY_ADD_FLOPS = 2.0

#: Products that the kernels are of: libraries have others for routed experts and attention.
_HAS_KERNELS = np.array([name in MATRIX_OPERATORS and name not in EXPERT_OPERATORS for name in OPERATORS])


@flax.struct.dataclass
class VectorTileKernels(SingleKernel):
    """Numbers of both kernels. Every field is a leaf, "*b"; rates are the device's."""

    short_title: ClassVar[str] = "vectors, tiles"
    title: ClassVar[str] = "vector kernels for few rows and tiles for more"
    unpacking: ClassVar[str] = (
        "The kernels unpack integers with scales; unpacking any other format is taken to cost no more, which is optimistic."
    )

    rows_per_pass: Leaf = number(POSITIVE)  # that one pass over the weights serves, >= 1
    unpack_instructions: Leaf = number(NOT_NEGATIVE)  # per weight and pass: mask, conversion, scale with offset
    row_instructions: Leaf = number(POSITIVE)  # per weight and row: a multiply-add, and getting the activation, >= 1
    switch_rows: Leaf = number(POSITIVE)  # from which on tiles are used, >= 1
    tile_rows: Leaf = number(POSITIVE)  # of an output tile of packed weights, >= 1
    tile_columns: Leaf = number(POSITIVE)  # of an output tile, >= 1
    tile_efficiency: Leaf = number(SHARE)  # share of the peak that a product of many tiles reaches, in (0, 1]
    #: Rows that a product in tiles takes longer, however many it has.
    fill_rows: Leaf = number(NOT_NEGATIVE, default=0.0)
    #: Rows of an output tile of weights that are not packed, some times `tile_rows`.
    wide_tile_rows: Leaf = number(POSITIVE, default=64.0)
    #: Weights of fewer stored bits are packed: integers with scales.
    packed_below_bits: Leaf = number(POSITIVE, default=UNCOMPRESSED_BITS)

    def product_time(
        self,
        m: Number,
        k: Number,
        n: Number,
        *,
        peak_flops_per_s: Number,
        weight_bits: Number = UNCOMPRESSED_BITS,
        temperature: Number = 0.0,
    ) -> Float[Array, "*b"]:
        """Seconds of arithmetic of an m x k by k x n product.

        Args:
            m, k, n: "*b", > 0, real.
            peak_flops_per_s: "*b", > 0; the device's, a multiply-add counts 2.
            weight_bits: "*b", > 0; bits stored per weight, which decide on the tile only.
            temperature: "*b", in [0, 1], of counts, of the switch (rows over which it happens) and of the minimum, which is
                smaller by a factor of at most 2 ** temperature; 0 is exact.
        Returns:
            "*b", s; never less for larger sizes or more bits.
        Gradient: right for every input; at temperature 0 counts are constants, see `smooth_ceil_div`, and a jump at the switch
            shows in no gradient.
        """
        unit, m, k, n, peak, weight_bits, temperature = same_rank(
            self, m, k, n, peak_flops_per_s, weight_bits, temperature
        )
        m, k, n = as_float(m), as_float(k), as_float(n)
        depth_s = _MULTIPLY_ADD_FLOPS * k / as_float(peak)  # of a row and a column, a multiply-add per instruction
        passes = smooth_ceil_div(m, unit.rows_per_pass, temperature)
        vector_s = (as_float(unit.unpack_instructions) * passes + as_float(unit.row_instructions) * m) * n * depth_s
        rows = _tiled(m, unit.tile_rows, temperature)
        # Of whole tiles, as relaxed counts of larger tiles are not always larger.
        wide = _tiled(rows, unit.wide_tile_rows, temperature)
        rows = wide + share_narrower(weight_bits, unit.packed_below_bits, temperature) * (rows - wide)
        columns = _tiled(n, unit.tile_columns, temperature)
        tile_s = (rows + as_float(unit.fill_rows)) * columns * depth_s / as_float(unit.tile_efficiency)
        faster_s = 1.0 / smooth_largest(1.0 / vector_s, 1.0 / tile_s, temperature=temperature)
        return tile_s + share_narrower(m, unit.switch_rows, temperature) * (faster_s - tile_s)

    def operator_times(self, work: OperatorWork, device: Device, *, temperature: Number = 0.0) -> UnitTimes:
        """Stored matrices as `product_time` has them, experts, attention and all else at the device's roofline; see
        `ComputeUnit`."""
        shapes, roof = products_of(work), ROOFLINE.operator_times(work, device)
        seconds = with_last_axis(self).product_time(
            shapes.m,
            shapes.k,
            shapes.n,
            peak_flops_per_s=with_last_axis(device.peak_flops_per_s),
            weight_bits=shapes.weight_bits,
            temperature=as_float(temperature),
        )
        compute_s = select(_HAS_KERNELS, seconds * (shapes.products * work.launches), roof.compute_s)
        return dataclasses.replace(roof, compute_s=compute_s)


def _tiled(size: Leaf, tile: Leaf, temperature: Number) -> Float[Array, "*b"]:
    """A size rounded up to whole tiles."""
    return as_float(tile) * smooth_ceil_div(size, tile, temperature)
