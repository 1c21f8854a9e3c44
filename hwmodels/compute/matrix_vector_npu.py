"""A mobile NPU: a matrix unit that multiplies tiles, vector units that make tiles out of quantized weights, a DMA for both.

Weights lie in whole tiles and come in strips: the tiles of one column of tiles, which together give one column of tiles of
the result. The DMA copies a strip on chip, the vector units convert it (unless the weights are stored as the matrix unit takes
them), and the matrix unit multiplies it with every tile of activations, so that each weight is copied and converted once
however many tokens there are. Up to a tile of tokens (32) the matrix unit takes the same time: its other rows idle.

"pipelined": the three work on successive strips at the same time. With s strips and stages of a, b and c seconds a strip,

    seconds = (a + b + c) + (s - 1) max(a, b, c);

"serial": one stage after the other, s (a + b + c).

Source: "Scaling LLM Test-Time Compute with Mobile NPU on Smartphones", 3.1.2, 3.2 (tiles, idle rows), 3.3 and Table 2 (rates),
    5.2.2 (conversion by lookup).
Departs: the paper does not say how the three overlap; strips are ours.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NamedTuple

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.compute.products import products_of, with_products
from hwmodels.compute.unit import SingleKernel, UnitTimes
from hwmodels.compute.vector_units import VectorUnits, dequantization_time, exponential_time
from hwmodels.compute.weight_slices import share_narrower
from hwmodels.device import Device
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from hwmodels.network.operators.work import OPERATORS, OperatorWork
from hwmodels.numerics.fields import POSITIVE, choice, number, part
from hwmodels.numerics.folds import smooth_ceil_div
from hwmodels.numerics.scalars import Leaf, Number, as_float, with_last_axis
from hwmodels.numerics.smoothing import smooth_maximum
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = ["SCHEDULES", "MatrixVectorNpu", "StageTimes", "stage_times"]

#: How copying, converting and multiplying share time: on successive strips at once, or one after the other.
SCHEDULES = ("pipelined", "serial")

_ATTENTION = OPERATORS.index("attention")


@flax.struct.dataclass
class MatrixVectorNpu(SingleKernel):
    """A matrix unit with vector units and a DMA. Every field but `schedule` is a leaf, "*b", or a tree of leaves.

    Raises:
        ValueError: `schedule` is not in `SCHEDULES`.
    """

    short_title: ClassVar[str] = "tiles+vector"
    title: ClassVar[str] = "a tiled matrix unit fed by vector units"
    unpacking: ClassVar[str] = "Converting weights of few bits is the work of the vector units, and its time counts."

    tile_rows: Leaf = number(POSITIVE)  # activations of a tile (m), >= 1
    tile_depth: Leaf = number(POSITIVE)  # elements summed in a tile (k), >= 1
    tile_columns: Leaf = number(POSITIVE)  # outputs of a tile (n), >= 1
    vector: VectorUnits = part(VectorUnits)
    # From DRAM into on-chip memory, > 0. Where the memory tier prices the same bytes they are not moved twice: pipelined, the
    # slower of two equal times decides; serial, this copy is the one that is waited for. Infinite: the tier's alone.
    dma_bytes_per_s: Leaf = number(POSITIVE)
    converted_below_bits: Leaf = number(
        POSITIVE, default=UNCOMPRESSED_BITS
    )  # weights of fewer stored bits pass through the vector units
    schedule: str = choice(*SCHEDULES)

    #: Of the matrix unit on full tiles, > 0; a multiply-add counts 2. None: the roof's rate of the device.
    peak_flops_per_s: Leaf = None

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule {self.schedule!r} is unknown; choose one of {', '.join(SCHEDULES)}")

    def product_time(
        self, m: Number, k: Number, n: Number, *, weight_bits: Number = UNCOMPRESSED_BITS, temperature: Number = 0.0
    ) -> Float[Array, "*b"]:
        """Seconds of an m x k by k x n product: copying its weights on chip, converting and multiplying them.

        Args:
            m, k, n: "*b", > 0, real; m counts tokens.
            weight_bits: "*b", > 0; bits stored per weight.
            temperature: "*b", in [0, 1], of all counts, of the limit of conversion and of the slowest stage; 0 is exact.
        Returns:
            "*b", s; at temperature 1 pipelined is serial.
        Gradient: right for every input. At temperature 0 the numbers of tiles are constants, with a kink where another
            stage becomes the slowest; by `weight_bits` there is a jump where conversion begins.
        """
        stages = jnp.stack(stage_times(self, m, k, n, weight_bits=weight_bits, temperature=temperature), axis=-1)
        one_after_the_other = jnp.sum(stages, axis=-1)
        if self.schedule == "serial":
            return one_after_the_other
        strips = smooth_ceil_div(n, self.tile_columns, temperature)
        slowest = smooth_maximum(stages, temperature)
        return slowest + (one_after_the_other - slowest) / strips

    def operator_times(self, work: OperatorWork, device: Device, *, temperature: Number = 0.0) -> UnitTimes:
        """Products as `product_time` has them, everything else at the device's roofline; see `ComputeUnit`.

        Attention's exponentials are looked up by the vector units, beside its products or after them, by the schedule.
        """
        temperature = as_float(temperature)
        unit, shapes = with_last_axis(self.on(device)), products_of(work)
        seconds = unit.product_time(
            shapes.m, shapes.k, shapes.n, weight_bits=shapes.weight_bits, temperature=temperature
        )
        times = with_products(work, device, product_s=seconds)
        m, n, products, launches, products_s = (
            leaf[..., _ATTENTION, None]
            for leaf in (shapes.m, shapes.n, shapes.products, work.launches, times.compute_s)
        )
        exponentials_s = launches * exponential_time(unit.vector, m * n * products, temperature=temperature)
        both = jnp.stack(jnp.broadcast_arrays(products_s, exponentials_s), axis=-1)
        joined = jnp.sum(both, axis=-1) if self.schedule == "serial" else smooth_maximum(both, temperature)
        compute_s = times.compute_s.at[..., _ATTENTION].set(joined[..., 0])
        return dataclasses.replace(times, compute_s=compute_s)

    def on(self, device: Device) -> MatrixVectorNpu:
        """The same with the device's rate where it has none of its own."""
        if self.peak_flops_per_s is not None:
            return self
        rate_flops_per_s = as_float(device.peak_flops_per_s) * as_float(device.compute_efficiency)
        return dataclasses.replace(self, peak_flops_per_s=rate_flops_per_s)


class StageTimes(NamedTuple):
    """Seconds that each stage of a product is busy, "*b"."""

    matrix_s: Float[Array, "*b"]
    vector_s: Float[Array, "*b"]
    dma_s: Float[Array, "*b"]


def stage_times(
    npu: MatrixVectorNpu,
    m: Number,
    k: Number,
    n: Number,
    *,
    weight_bits: Number = UNCOMPRESSED_BITS,
    temperature: Number = 0.0,
) -> StageTimes:
    """How long the matrix unit, the vector units and the DMA work on an m x k by k x n product.

    Args:
        npu: leaves "*b".
        m, k, n: "*b", > 0, real.
        weight_bits: "*b", > 0; bits stored per weight.
        temperature: "*b", in [0, 1], of all counts and of the limit of conversion; 0 is exact.
    Gradient: as `MatrixVectorNpu.product_time`, without its kink.
    """
    row_tiles = smooth_ceil_div(m, npu.tile_rows, temperature)
    depth_tiles = smooth_ceil_div(k, npu.tile_depth, temperature)
    column_tiles = smooth_ceil_div(n, npu.tile_columns, temperature)
    tile_weights = as_float(npu.tile_depth) * as_float(npu.tile_columns)
    weights = depth_tiles * column_tiles * tile_weights
    tile_s = 2.0 * as_float(npu.tile_rows) * tile_weights / as_float(npu.peak_flops_per_s)

    convert_s = dequantization_time(npu.vector, weights, weight_bits=weight_bits, temperature=temperature)
    converted = share_narrower(weight_bits, npu.converted_below_bits, temperature)
    dma_s = weights * (as_float(weight_bits) / BITS_PER_BYTE) / as_float(npu.dma_bytes_per_s)
    times = (row_tiles * depth_tiles * column_tiles * tile_s, convert_s * converted, dma_s)
    return StageTimes(*jnp.broadcast_arrays(*times))
