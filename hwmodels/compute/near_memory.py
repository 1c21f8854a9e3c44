"""Processing elements at the banks of a memory: PIM in the banks, logic beside them, hybrid-bonded ones below them.

A product's weights are cut into blocks and dealt out to the processing elements (PEs), each of which holds its blocks in
its own bank. In every cycle a PE multiplies one slice of a block with a few activations, its *reuse*: 1 in PIM, which fetches
all weights anew for each activation; some in near-memory logic; as many as the multiplier array is deep in a bonded PE.
More activations take more passes. PEs without a block idle, and so do their banks: `active_share` is what a coupled tier in
`hwmodels.memory.tiers` slows down by.

    seconds = ceil(m / reuse) * ceil(blocks / PEs) * slices / frequency,   blocks = ceil(k / depth) * ceil(n / columns)

Source: ELMoE-3D, 4.1 (PE), 4.3 (slices), 5.1 and Fig. 9 (coupled and decoupled rooflines), Table 1; 7 (PIM, LogicPIM, NMP).
Departs: the paper prints "16 x 32 x 32" without naming the sides; 32 over k is its adder tree's width, 16 over activations is
    ours. Of PIM, LogicPIM and NMP it prints a throughput and a ratio of bandwidths; their reuse follows from the two.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import flax.struct
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.chip.blocks import HardwareBlock, Technology
from hwmodels.compute.tile_counts import at_one_depth, products_of, with_products
from hwmodels.compute.unit import SingleKernel, UnitTimes, WholePasses
from hwmodels.compute.weight_layouts import METADATA_BITS, weight_slices
from hwmodels.device import Device
from hwmodels.memory.placement import first_memory_share
from hwmodels.network.architecture import UNCOMPRESSED_BITS
from hwmodels.network.operators.work import EXPERT_OPERATORS, OPERATORS, OperatorWork
from hwmodels.numerics.fields import NOT_NEGATIVE, POSITIVE, choice, number, part
from hwmodels.numerics.folds import smooth_ceil_div
from hwmodels.numerics.scalars import Leaf, Number, as_float, same_rank, select, with_last_axis
from hwmodels.numerics.units import BITS_PER_BYTE
from hwmodels.parallel import ElementLinks, Phase, divide, sum_exchange

__all__ = ["NearMemoryUnit", "active_share"]


_IS_ATTENTION = np.array([name == "attention" for name in OPERATORS])
_IS_EXPERT = np.array([name in EXPERT_OPERATORS for name in OPERATORS])


@flax.struct.dataclass
class NearMemoryUnit(WholePasses, SingleKernel):
    """Processing elements, each with a bank of its own. Every field but the last is a leaf, "*b"."""

    short_title: ClassVar[str] = "at banks"
    title: ClassVar[str] = "processing elements at the memory's banks"

    pes: Leaf = number(POSITIVE)  # >= 1
    reuse: Leaf = number(POSITIVE)  # activations that a block of weights is multiplied with when it is fetched, >= 1
    block_depth: Leaf = number(POSITIVE)  # weights of a block over k, >= 1
    block_columns: Leaf = number(POSITIVE)  # weights of a block over n, >= 1
    frequency_hz: Leaf = number(POSITIVE)  # block slices that a PE multiplies, or its bank delivers, in a second, > 0
    slice_bits: Leaf = number(POSITIVE, default=8.0)  # bits of a weight that are multiplied in a cycle, > 0
    metadata_bits: Leaf = number(
        NOT_NEGATIVE, default=METADATA_BITS
    )  # stored bits per weight that may belong to no value, >= 0
    links: ElementLinks | None = part(ElementLinks, default=None)  # None: exchanging takes nothing
    #: How weights behind the first memory are multiplied; those in the elements' own banks always are by columns.
    external_phase: Phase = choice("tensor", "data")

    @property
    def elements(self) -> Leaf:
        """Multipliers of one slice in all PEs, "*b": what `Chip.element_area_m2` is the area of one of."""
        macs = as_float(self.reuse) * as_float(self.block_depth) * as_float(self.block_columns)
        return as_float(self.pes) * macs

    def hardware(self, device: Device, technology: Technology) -> tuple[HardwareBlock, ...]:
        """Multipliers of a slice and an activation, and the elements' links; activations of 8 bits unless the links say."""
        del device, technology
        one = HardwareBlock(
            macs=self.elements, frequency_hz=self.frequency_hz, weight_bits=self.slice_bits, activation_bits=8.0
        )
        if self.links is None:
            return (one,)
        each = as_float(self.links.aggregation_bytes_per_s) + as_float(self.links.streamline_bytes_per_s)
        return (
            dataclasses.replace(
                one,
                activation_bits=self.links.activation_bits,
                link_bytes_per_s=as_float(self.pes) * each,
                link_j_per_bit=self.links.energy_j_per_bit,
            ),
        )

    @property
    def peak_flops_per_s(self) -> Leaf:
        """Rate with all PEs and activations busy on weights of one slice, "*b"; a multiply-add counts 2."""
        return 2.0 * self.elements * as_float(self.frequency_hz)

    def product_time(
        self,
        m: Number,
        k: Number,
        n: Number,
        *,
        weight_bits: Number = UNCOMPRESSED_BITS,
        temperature: Number = 0.0,
        phase: Phase = "tensor",
    ) -> Float[Array, "*b"]:
        """Seconds of arithmetic of an m x k by k x n product, with each pass's weights from the PE's side of the bank.

        Args:
            m, k, n: "*b", > 0, real; m counts activations.
            weight_bits: "*b", > 0; bits stored per weight, which decide on the number of slices.
            temperature: "*b", in [0, 1], of all counts; 0 is exact.
            phase: static; how the product is divided among the elements.
        Returns:
            "*b", s.
        Gradient: right for every input; at temperature 0 the counts are constants: see `smooth_ceil_div`.
        """
        unit, m, k, n, weight_bits, temperature = same_rank(self, m, k, n, weight_bits, temperature)
        divided = divide(
            phase,
            m,
            _blocks(unit, k, n, temperature),
            elements=unit.pes,
            reuse=unit.reuse,
            temperature=temperature,
        )
        slices = weight_slices(weight_bits, unit.slice_bits, metadata_bits=unit.metadata_bits, temperature=temperature)
        return divided.passes * divided.blocks * slices / as_float(unit.frequency_hz)

    def operator_times(self, work: OperatorWork, device: Device, *, temperature: Number = 0.0) -> UnitTimes:
        """Products as `product_time` has them, everything else at the device's roofline; idle PEs' banks slow a coupled
        memory down; see `ComputeUnit`."""
        unit, shapes, tiers = with_last_axis(self), at_one_depth(work), device.tiers
        counts = {"weight_bits": shapes.weight_bits, "temperature": as_float(temperature)}
        seconds = unit.product_time(shapes.m, shapes.k, shapes.n, **counts)
        if self.external_phase == "data" and device.spill:
            by_rows = unit.product_time(shapes.m, shapes.k, shapes.n, phase="data", **counts)
            here = first_memory_share(device, work)
            seconds = here * seconds + (1.0 - here) * by_rows
        times = with_products(work, device, product_s=seconds)
        shares = list(times.memory_share)
        if any(tier.coupled for tier in tiers):
            in_use = _share_of_traffic(unit, work, temperature=as_float(temperature))
            shares = [share * in_use if tier.coupled else share for tier, share in zip(tiers, shares, strict=True)]
        if self.links is None:
            return dataclasses.replace(times, memory_share=tuple(shares))
        return _with_links(unit, times, shares, work, device)


def _with_links(
    unit: NearMemoryUnit,
    times: UnitTimes,
    shares: list[Float[Array, "... operator"]],
    work: OperatorWork,
    device: Device,
) -> UnitTimes:
    """Streams from memories without elements of their own pass the streamline; sums of experts the aggregation links."""
    shapes, links = products_of(work), unit.links
    assert links is not None
    for i, tier in enumerate(device.tiers):
        if not tier.coupled:
            limit = links.streamline_bytes_per_s / with_last_axis(tier.bandwidth_bytes_per_s)
            shares[i] = jnp.where(shares[i] > limit, limit, shares[i])
    exchange = sum_exchange(links, shapes.m, shapes.k, shapes.n, elements=unit.pes)
    count = select(_IS_EXPERT, shapes.products * work.launches, 0.0)
    return dataclasses.replace(
        times,
        memory_share=tuple(shares),
        exchange_s=exchange.time_s * count,
        link_j=exchange.volume_bytes * count * (BITS_PER_BYTE * links.energy_j_per_bit),
    )


def _share_of_traffic(unit: NearMemoryUnit, work: OperatorWork, *, temperature: Number) -> Float[Array, "... operator"]:
    """Share of a coupled memory's bandwidth that an operator's whole traffic has.

    What lies in blocks crosses at the banks that have some: weights, and keys and values of the context. Activations, and keys
    and values that are written, cross at all banks, so that their time does not depend on how many blocks there are to read.
    """
    shapes, total = products_of(work), work.memory_bytes
    in_blocks, k, n = jnp.where(shapes.products > 0, work.weight_bytes, 0.0), shapes.k, shapes.n
    if work.attention is not None and work.kv_elements is not None and work.kv_bits is not None:
        cached, kv_bytes = with_last_axis(work.attention), work.kv_elements * work.kv_bits / BITS_PER_BYTE
        in_blocks += select(_IS_ATTENTION, jnp.minimum(with_last_axis(kv_bytes), work.kv_bytes), 0.0)
        k, n = select(_IS_ATTENTION, cached.elements, k), select(_IS_ATTENTION, jnp.maximum(cached.tokens, 1.0), n)
    slowed = in_blocks / active_share(unit, k, n, temperature=temperature) + (total - in_blocks)
    return jnp.where(in_blocks > 0, total / jnp.where(in_blocks > 0, slowed, 1.0), 1.0)


def active_share(unit: NearMemoryUnit, k: Number, n: Number, *, temperature: Number = 0.0) -> Float[Array, "*b"]:
    """Share u of the PEs that work on a product with k x n weights, on average over its time.

    Fewer blocks than PEs leave the others idle; more are dealt out in rounds, the last of which may not go round; and the last
    block of a row or column may not be full. Traffic to a coupled tier over u times its bandwidth is exactly the time of a bank
    with the most blocks, all of them full, so that more weights never take less.

    Args:
        unit: leaves "*b".
        k, n: "*b", > 0, real.
        temperature: "*b", in [0, 1], of the counts; 0 is exact.
    Returns:
        "*b", in (0, 1].
    Gradient: as `NearMemoryUnit.product_time`.
    Source: ELMoE-3D, 5.1: at partial use of the PEs a coupled roofline scales down in both axes.
    """
    unit, k, n, temperature = same_rank(unit, k, n, temperature)
    blocks = _blocks(unit, k, n, temperature)
    in_turn = divide("tensor", 1.0, blocks, elements=unit.pes, reuse=unit.reuse, temperature=temperature).active_share
    filled = _filled(k, unit.block_depth, temperature) * _filled(n, unit.block_columns, temperature)
    return jnp.asarray(in_turn * filled)


def _filled(extent: Leaf, block: Leaf, temperature: Leaf) -> Leaf:
    """How full blocks are along one side, on average, over the fullest one."""
    count = smooth_ceil_div(extent, block, temperature)
    fullest = jnp.minimum(extent, block)
    return extent / (jnp.maximum(count, 1.0) * fullest)


def _blocks(unit: NearMemoryUnit, k: Number, n: Number, temperature: Number) -> Float[Array, "*b"]:
    return smooth_ceil_div(k, unit.block_depth, temperature) * smooth_ceil_div(n, unit.block_columns, temperature)
