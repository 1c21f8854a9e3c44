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
from jaxtyping import Array, Float

from hwmodels.compute.products import products_of, with_products
from hwmodels.compute.unit import SingleKernel, UnitTimes
from hwmodels.compute.weight_slices import METADATA_BITS, weight_slices
from hwmodels.device import Device
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from hwmodels.network.operators.work import OperatorWork
from hwmodels.numerics.fields import NOT_NEGATIVE, POSITIVE, number
from hwmodels.numerics.folds import smooth_ceil_div
from hwmodels.numerics.scalars import Leaf, Number, as_float, with_last_axis

__all__ = ["NearMemoryUnit", "active_share", "weight_fetches"]


@flax.struct.dataclass
class NearMemoryUnit(SingleKernel):
    """Processing elements, each with a bank of its own. Every field is a leaf, "*b"."""

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

    @property
    def elements(self) -> Leaf:
        """Multipliers of one slice in all PEs, "*b": what `Chip.element_area_m2` is the area of one of."""
        macs = as_float(self.reuse) * as_float(self.block_depth) * as_float(self.block_columns)
        return as_float(self.pes) * macs

    @property
    def peak_flops_per_s(self) -> Leaf:
        """Rate with all PEs and activations busy on weights of one slice, "*b"; a multiply-add counts 2."""
        return 2.0 * self.elements * as_float(self.frequency_hz)

    def product_time(
        self, m: Number, k: Number, n: Number, *, weight_bits: Number = UNCOMPRESSED_BITS, temperature: Number = 0.0
    ) -> Float[Array, "*b"]:
        """Seconds of arithmetic of an m x k by k x n product, with each pass's weights from the PE's side of the bank.

        Args:
            m, k, n: "*b", > 0, real; m counts activations.
            weight_bits: "*b", > 0; bits stored per weight, which decide on the number of slices.
            temperature: "*b", in [0, 1], of all counts; 0 is exact.
        Returns:
            "*b", s.
        Gradient: right for every input; at temperature 0 the counts are constants: see `smooth_ceil_div`.
        """
        _, rounds = _blocks_and_rounds(self, k, n, temperature)
        slices = weight_slices(weight_bits, self.slice_bits, metadata_bits=self.metadata_bits, temperature=temperature)
        return weight_fetches(self, m, temperature) * rounds * slices / as_float(self.frequency_hz)

    def operator_times(self, work: OperatorWork, device: Device, *, temperature: Number = 0.0) -> UnitTimes:
        """Products as `product_time` has them, everything else at the device's roofline; idle PEs' banks slow a coupled
        memory down; see `ComputeUnit`."""
        unit, shapes = with_last_axis(self), products_of(work)
        seconds = unit.product_time(
            shapes.m, shapes.k, shapes.n, weight_bits=shapes.weight_bits, temperature=as_float(temperature)
        )
        times = with_products(work, device, product_s=seconds)
        if not any(tier.coupled for tier in (device.memory, *device.spill)):
            return times
        in_use = active_share(unit, shapes.k, shapes.n, temperature=as_float(temperature))
        in_use = jnp.where(shapes.products > 0, in_use, 1.0)
        reached = zip((device.memory, *device.spill), times.memory_share, strict=True)
        shares = tuple(share * in_use if tier.coupled else share for tier, share in reached)
        return dataclasses.replace(times, memory_share=shares)


def weight_fetches(unit: NearMemoryUnit, m: Number, temperature: Number = 0.0) -> Float[Array, "*b"]:
    """How often each weight is fetched to be multiplied with m activations, "*b", >= m / reuse."""
    return smooth_ceil_div(m, unit.reuse, temperature)


def active_share(unit: NearMemoryUnit, k: Number, n: Number, *, temperature: Number = 0.0) -> Float[Array, "*b"]:
    """Share u of the PEs that work on a product with k x n weights, on average over its time.

    Fewer blocks than PEs leave the others idle; more are dealt out in rounds, the last of which may not go round. Traffic
    to a coupled tier over u times its bandwidth is exactly the time of the fullest bank.

    Args:
        unit: leaves "*b".
        k, n: "*b", > 0, real.
        temperature: "*b", in [0, 1], of the counts; 0 is exact.
    Returns:
        "*b", in (0, 1].
    Gradient: as `NearMemoryUnit.product_time`.
    Source: ELMoE-3D, 5.1: at partial use of the PEs a coupled roofline scales down in both axes.
    """
    blocks, rounds = _blocks_and_rounds(unit, k, n, temperature)
    return blocks / rounds / as_float(unit.pes)


def _blocks_and_rounds(
    unit: NearMemoryUnit, k: Number, n: Number, temperature: Number
) -> tuple[Float[Array, "*b"], Float[Array, "*b"]]:
    blocks = smooth_ceil_div(k, unit.block_depth, temperature) * smooth_ceil_div(n, unit.block_columns, temperature)
    return blocks, smooth_ceil_div(blocks, unit.pes, temperature)
