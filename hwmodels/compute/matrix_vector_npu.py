"""A mobile NPU: a matrix unit that multiplies tiles, vector units that make tiles out of quantized weights, a DMA for both.

Weights lie in whole tiles and come in strips: the tiles of one column of tiles, which together give one column of tiles of
the result. The DMA copies a strip on chip, the vector units convert it (unless the weights are stored as the matrix unit takes
them), and the matrix unit multiplies it with every tile of activations, so that each weight is copied and converted once for
as many tokens as have their activations on chip. Up to a tile of tokens (32) the matrix unit takes the same time: its other
rows idle.

"pipelined": the three work on successive strips at the same time. With s strips and stages of a, b and c seconds a strip,

    seconds = (a + b + c) + (s - 1) max(a, b, c);

"serial": one stage after the other, s (a + b + c).

Attention's softmax is the vector units' work, beside its products or after them, by the schedule. A host beside the NPU may
keep the vocabulary projection.

Source: "Scaling LLM Test-Time Compute with Mobile NPU on Smartphones", 3.1.2, 3.2 (tiles, idle rows), 3.3 and Table 2 (rates),
    5 (conversion and softmax by lookup), 7.2.2 (the projection on the CPU).
Departs: the paper does not say how the three overlap; strips are ours.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NamedTuple

import flax.struct
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.chip.blocks import HardwareBlock, Technology
from hwmodels.compute.gpu_experts import stored_at
from hwmodels.compute.tile_counts import products_of, with_products
from hwmodels.compute.unit import ComputeUnit, Rated, SingleKernel, UnitTimes, WholePasses
from hwmodels.compute.vector_array import VectorUnits, dequantization_time, softmax_time
from hwmodels.compute.weight_layouts import share_narrower
from hwmodels.device import Device
from hwmodels.network.architecture import UNCOMPRESSED_BITS
from hwmodels.network.operators.work import MATRIX_OPERATORS, OPERATORS, OperatorWork
from hwmodels.numerics.fields import BYTE_RATE, FLOP_RATE, NOT_NEGATIVE, POSITIVE, choice, number, part
from hwmodels.numerics.folds import smooth_ceil_div
from hwmodels.numerics.scalars import Leaf, Number, as_float, same_rank, select, with_last_axis
from hwmodels.numerics.smoothing import smooth_maximum
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = [
    "SCHEDULES",
    "AttentionTimes",
    "HostProcessor",
    "MatrixVectorNpu",
    "StageTimes",
    "attention_times",
    "head_on_host",
    "reached_share",
    "stage_times",
]


_IS_HEAD = np.array([name == "lm_head" for name in OPERATORS])


@flax.struct.dataclass
class HostProcessor:
    """Cores that share the work evenly. Every field is a leaf, "*b"."""

    cores: Leaf = number(POSITIVE)  # that work at the same time, > 0
    peak_flops_per_s: Leaf = number(FLOP_RATE)  # of one core on products of quantized matrices, > 0
    bandwidth_bytes_per_s: Leaf = number(BYTE_RATE)  # that all of them reach together, > 0
    power_w: Leaf = number(NOT_NEGATIVE)  # of all of them while they compute, >= 0; counts where energy is known


def reached_share(path_bytes_per_s: Leaf, bandwidth_bytes_per_s: Leaf) -> Leaf:
    """Share of a memory's bandwidth that a path of its own rate reaches, "*b", in (0, 1]; kink where they are equal."""
    return jnp.minimum(1.0, as_float(path_bytes_per_s) / as_float(bandwidth_bytes_per_s))


def head_on_host(times: UnitTimes, host: HostProcessor, work: OperatorWork, device: Device) -> UnitTimes:
    """The same times with those of the vocabulary projection replaced by the host's.

    Args:
        times: of all operators on the device.
        host, device: leaves "*b".
        work: "*b operator".
    """
    one = with_last_axis(host)
    busy_s = work.flops / (one.cores * one.peak_flops_per_s)
    tiers = device.tiers
    shares = tuple(
        select(_IS_HEAD, with_last_axis(reached_share(host.bandwidth_bytes_per_s, tier.bandwidth_bytes_per_s)), own)
        for tier, own in zip(tiers, times.memory_share, strict=True)
    )
    energy_j = times.energy_j
    if energy_j is not None:
        read_s = work.weight_bytes / one.bandwidth_bytes_per_s
        energy_j = select(_IS_HEAD, jnp.maximum(busy_s, read_s) * one.power_w, energy_j)
    return dataclasses.replace(
        times, compute_s=select(_IS_HEAD, busy_s, times.compute_s), memory_share=shares, energy_j=energy_j
    )


#: How copying, converting and multiplying share time: on successive strips at once, or one after the other.
SCHEDULES = ("pipelined", "serial")

_ATTENTION = OPERATORS.index("attention")

#: Operators whose bytes the vector units read themselves: no block of weights, no keys and values.
_OWN_PATH = np.array([name != "attention" and name not in MATRIX_OPERATORS for name in OPERATORS])

#: Of an activation on chip.
_ACTIVATION_BYTES = UNCOMPRESSED_BITS / BITS_PER_BYTE


@flax.struct.dataclass
class MatrixVectorNpu(WholePasses, Rated):
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
    dma_bytes_per_s: Leaf = number(BYTE_RATE)
    converted_below_bits: Leaf = number(
        POSITIVE, default=UNCOMPRESSED_BITS
    )  # weights of fewer stored bits pass through the vector units
    schedule: str = choice(*SCHEDULES)
    #: Memory on chip, > 0, less what a table of exponentials takes: activations that do not fit make weights come and be
    #: converted again. None: activations always fit.
    on_chip_bytes: Leaf = number(POSITIVE, default=None)
    #: From memory to the vector units without the DMA, > 0; None: as fast as the memory.
    core_path_bytes_per_s: Leaf = number(BYTE_RATE, default=None)
    host: HostProcessor | None = part(HostProcessor, default=None)  # None: the NPU computes logits itself

    #: Of the matrix unit on full tiles, > 0; a multiply-add counts 2. None: the roof's rate of the device.
    peak_flops_per_s: Leaf = None

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule {self.schedule!r} is unknown; choose one of {', '.join(SCHEDULES)}")

    def kernels(self, work: OperatorWork) -> list[tuple[ComputeUnit, OperatorWork]]:
        """Weights as they are stored, and the same weights stored as wide as the matrix unit takes them."""
        bits = products_of(work).weight_bits
        wide = stored_at(work, jnp.maximum(bits, with_last_axis(self.converted_below_bits)))
        return [(_OneWidth(self), work), (_OneWidth(self), wide)]

    def kernel_shares(
        self, work: OperatorWork, total_s: Float[Array, "... operator kernel"]
    ) -> Float[Array, "... operator kernel"]:
        """All of the faster one: weights that take longer to convert than to copy can always be stored wider."""
        del work
        wide = (total_s[..., 1] < total_s[..., 0]).astype(total_s.dtype)
        return jnp.stack([1.0 - wide, wide], axis=-1)

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
        npu, m, k, n, weight_bits, temperature = same_rank(self, m, k, n, weight_bits, temperature)
        stages = jnp.stack(stage_times(npu, m, k, n, weight_bits=weight_bits, temperature=temperature), axis=-1)
        one_after_the_other = jnp.sum(stages, axis=-1)
        if self.schedule == "serial":
            return one_after_the_other
        strips = smooth_ceil_div(n, npu.tile_columns, temperature)
        slowest = smooth_maximum(stages, temperature)
        return slowest + (one_after_the_other - slowest) / strips

    def operator_times(self, work: OperatorWork, device: Device, *, temperature: Number = 0.0) -> UnitTimes:
        """Products as `product_time` has them, attention with its softmax, all else at the roofline; see `ComputeUnit`.

        Energy: of whole tiles, idle rows included, and of the vector units while they work.
        """
        temperature = as_float(temperature)
        unit, shapes = with_last_axis(self.on(device)), products_of(work)
        sizes = (shapes.m, shapes.k, shapes.n)
        bits = {"weight_bits": shapes.weight_bits, "temperature": temperature}
        seconds, stages = unit.product_time(*sizes, **bits), stage_times(unit, *sizes, **bits)
        split = attention_times(unit, work, temperature=temperature)
        vector_s = stages.vector_s.at[..., _ATTENTION].set(split.softmax_s)
        product_j = None
        flop_j = device.energy_j_per_flop
        if flop_j is not None:
            flops = stages.matrix_s * unit.peak_flops_per_s
            product_j = flops * with_last_axis(flop_j)
            if unit.vector.power_w is not None:
                product_j = product_j + vector_s * unit.vector.power_w
        seconds = seconds.at[..., _ATTENTION].set(self._joined(split, temperature))
        times = with_products(work, device, product_s=seconds, product_j=product_j)
        if self.core_path_bytes_per_s is not None:
            times = dataclasses.replace(times, memory_share=self._shares(times, device))
        return times if self.host is None else head_on_host(times, self.host, work, device)

    def hardware(self, device: Device, technology: Technology) -> tuple[HardwareBlock, ...]:
        """The matrix unit with the memory on chip, and a multiplier for each score of a register, at one clock."""
        del technology
        frequency_hz = as_float(self.vector.packets_per_s)
        matrix = HardwareBlock(
            macs=as_float(self.on(device).peak_flops_per_s) / (2.0 * frequency_hz),
            frequency_hz=frequency_hz,
            sram_bytes=0.0 if self.on_chip_bytes is None else self.on_chip_bytes,
        )
        lanes = as_float(self.vector.units) * as_float(self.vector.register_scores)
        return matrix, HardwareBlock(macs=lanes, frequency_hz=frequency_hz)

    def _joined(self, split: AttentionTimes, temperature: Number) -> Float[Array, "*b"]:
        """Attention's products and softmax by the schedule."""
        both = jnp.stack(jnp.broadcast_arrays(*split), axis=-1)
        return jnp.sum(both, axis=-1) if self.schedule == "serial" else smooth_maximum(both, temperature)

    def _shares(self, times: UnitTimes, device: Device) -> tuple[Float[Array, "... operator"], ...]:
        """Shares of the memories' bandwidths with those of the vector units' own path."""
        tiers = device.tiers
        own = [with_last_axis(reached_share(self.core_path_bytes_per_s, tier.bandwidth_bytes_per_s)) for tier in tiers]
        return tuple(select(_OWN_PATH, path, share) for path, share in zip(own, times.memory_share, strict=True))

    def on(self, device: Device) -> MatrixVectorNpu:
        """The same with the device's rate where it has none of its own."""
        if self.peak_flops_per_s is not None:
            return self
        rate_flops_per_s = as_float(device.peak_flops_per_s) * as_float(device.compute_efficiency)
        return dataclasses.replace(self, peak_flops_per_s=rate_flops_per_s)


@flax.struct.dataclass
class _OneWidth(SingleKernel):
    """The same NPU for weights that are read as they are given."""

    short_title: ClassVar[str] = MatrixVectorNpu.short_title
    title: ClassVar[str] = MatrixVectorNpu.title

    unit: MatrixVectorNpu

    def operator_times(self, work: OperatorWork, device: Device, *, temperature: Number = 0.0) -> UnitTimes:
        """See `ComputeUnit`."""
        return self.unit.operator_times(work, device, temperature=temperature)


class AttentionTimes(NamedTuple):
    """Seconds of attention's two parts for one key-value head of one sequence, "*b"."""

    products_s: Float[Array, "*b"]  # of scores and of values, keys and values copied on chip
    softmax_s: Float[Array, "*b"]


def attention_times(npu: MatrixVectorNpu, work: OperatorWork, *, temperature: Number = 0.0) -> AttentionTimes:
    """Latency split of attention in one layer, for one key-value head of one sequence and all queries that share it.

    Args:
        npu: leaves "*b 1" or single numbers, with a rate of its own: see `MatrixVectorNpu.on`.
        work: "*b operator".
        temperature: "*b", in [0, 1], of all counts; 0 is exact.
    Returns:
        "*b"; with leaves "*b 1" and work without a batch, single numbers.
    Source: mobile NPU, 5.2.1, Fig. 8.
    """
    shapes = products_of(work)
    m, k, n = (leaf[..., _ATTENTION, None] for leaf in (shapes.m, shapes.k, shapes.n))
    products_s = npu.product_time(m, k, n, temperature=temperature)
    softmax_s = softmax_time(npu.vector, m, n, temperature=temperature)
    return AttentionTimes(*(part[..., 0] for part in jnp.broadcast_arrays(products_s, softmax_s)))


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
    npu, m, k, n, weight_bits, temperature = same_rank(npu, m, k, n, weight_bits, temperature)
    row_tiles = smooth_ceil_div(m, npu.tile_rows, temperature)
    depth_tiles = smooth_ceil_div(k, npu.tile_depth, temperature)
    column_tiles = smooth_ceil_div(n, npu.tile_columns, temperature)
    tile_weights = as_float(npu.tile_depth) * as_float(npu.tile_columns)
    weights = depth_tiles * column_tiles * tile_weights
    copied = weights if npu.on_chip_bytes is None else weights * _rounds(npu, m, k, temperature)
    tile_s = 2.0 * as_float(npu.tile_rows) * tile_weights / as_float(npu.peak_flops_per_s)

    convert_s = dequantization_time(npu.vector, copied, weight_bits=weight_bits, temperature=temperature)
    converted = share_narrower(weight_bits, npu.converted_below_bits, temperature)
    dma_s = copied * (as_float(weight_bits) / BITS_PER_BYTE) / as_float(npu.dma_bytes_per_s)
    times = (row_tiles * depth_tiles * column_tiles * tile_s, convert_s * converted, dma_s)
    return StageTimes(*jnp.broadcast_arrays(*times))


def _rounds(npu: MatrixVectorNpu, m: Number, k: Number, temperature: Number) -> Float[Array, "*b"]:
    """How often weights come on chip: once for as many rows of activations as fit there, at most once for each row.

    A table that takes all of the memory leaves no room, not less than none.
    """
    room = as_float(npu.on_chip_bytes) - npu.vector.exponential.on_chip_bytes
    row_bytes = as_float(k) * _ACTIVATION_BYTES
    return smooth_ceil_div(as_float(m) * row_bytes, jnp.maximum(room, row_bytes), temperature)
