"""A device: what computes, what remembers, what decodes compressed weights, and what all of it costs."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import flax.struct

from hwmodels.numerics.scalars import Leaf

#: How several memories share time: all at once, so that the slowest decides, or one after the other.
Schedule: TypeAlias = Literal["overlapped", "serial"]


@flax.struct.dataclass
class MemoryTier:
    """A memory from which weights and KV are streamed. Every field but `coupled` is a leaf, "*b".

    Coupled: each compute unit has its own part of the banks, so that the bandwidth is that of the units in use.
    """

    bandwidth_bytes_per_s: Leaf  # of the data sheet, > 0
    efficiency: Leaf  # share of the bandwidth that streaming reaches, in (0, 1]
    capacity_bytes: Leaf  # > 0
    access_latency_s: Leaf = 0.0  # from a request to its data, >= 0
    outstanding_accesses: Leaf = 1.0  # under way at the same time, which hides their latency, > 0
    given_half_bytes: Leaf = None  # access that reaches half the bandwidth, >= 0; None: as the latency has it
    energy_j_per_bit: Leaf = 0.0  # of moving a bit, >= 0
    coupled: bool = flax.struct.field(pytree_node=False, default=False)


@flax.struct.dataclass
class Chip:
    """Power and area beside memory and decoder. Every field is a leaf, "*b"."""

    energy_j_per_flop: Leaf  # of arithmetic with its on-chip traffic, >= 0
    static_power_w: Leaf  # drawn whatever is done, >= 0
    area_m2: Leaf  # of the die without decoders, > 0; with `element_area_m2` without the matrix unit's elements too
    element_area_m2: Leaf = None  # of one element of the matrix unit, > 0; None: area by the unit's size is not known


@flax.struct.dataclass
class Device:
    """A processor with its memories. Every field is a leaf, "*b", or a tree of leaves: any of them may be swept or
    differentiated by.

    Without a `matrix_unit` all FLOPs run at the roof's rate; with one, products of matrices take the time that it says and
    everything else runs at the roof's rate.
    """

    peak_flops_per_s: Leaf  # dense 16-bit matrix products of the data sheet, > 0; a multiply-add counts 2
    compute_efficiency: Leaf  # share of the peak that large products reach, in (0, 1]
    memory: MemoryTier  # filled first, and where activations go
    scratchpad_bytes: Leaf  # last on-chip level shared by all compute units (L2 cache or scratchpad), > 0
    operator_latency_s: Leaf  # fixed time of one operator launch, not overlapped with anything, >= 0
    spill: tuple[
        MemoryTier, ...
    ] = ()  # takes what the memory before it cannot hold: KV first, then weights, then experts
    matrix_unit: Any = None  # a hwmodels.compute.unit.ComputeUnit; None: everything runs at the roof's rate
    decoder: Any = None  # a hwmodels.decoders.Decoder, where weights are stored compressed
    chip: Chip | None = None  # None: energy and area are not known
    kv_traffic_factor: Leaf = 1.0  # bytes that attention moves per byte of KV cache, > 0; 1 reads each once
    schedule: Schedule = flax.struct.field(pytree_node=False, default="overlapped")  # of the memories
