"""A device: what computes, what remembers, what decodes compressed weights, and what all of it costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import flax.struct

from hwmodels.numerics.scalars import Leaf, Number

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


class ComputeUnit(Protocol):
    """What multiplies matrices: any tree of leaves with these two methods; see `hwmodels.compute`.

    A unit whose area grows with its size also says its number of `elements`, "*b".
    """

    def product_time(
        self, m: Number, k: Number, n: Number, *, weight_bits: Number = ..., temperature: Number = ...
    ) -> Any:
        """Seconds, "*b", of the arithmetic of one m x k by k x n product, whatever it waits for memory."""
        ...

    def launch_time(self, m: Number, k: Number, n: Number, *, weight_bits: Number = ...) -> Any:
        """Seconds, "*b", that each launch takes beside arithmetic and traffic."""
        ...


@runtime_checkable
class WorkUnit(Protocol):
    """A compute unit that prices whole operators on its device, traffic included: a calibrated GPU."""

    overlap_temperature: float  # of the smooth maximum over computing, moving and decoding

    def kernels(self, work: Any) -> Sequence[tuple[Any, Any]]:
        """The kernels that it may choose from: for each a unit that has no other, and the work as that kernel reads it."""
        ...

    def kernel_shares(self, work: Any, times: Any) -> Any:
        """How much each kernel counts in an operator's time, "*b operator kernel", from each one's time alone."""
        ...

    def operator_compute_time(self, device: Device, work: Any, roof_s: Any, *, temperature: Number = ...) -> Any:
        """Seconds, "*b operator", of arithmetic; `roof_s` is what the device's roof says."""
        ...

    def streaming_share(self, device: Device, work: Any) -> Any:
        """Share of the first memory's bandwidth that each operator reaches, "*b operator"."""
        ...

    def operator_launch_time(self, device: Device, work: Any) -> Any:
        """Seconds of one launch of each operator, "*b operator"."""
        ...


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
    matrix_unit: Any = None  # a ComputeUnit or a WorkUnit
    decoder: Any = None  # a hwmodels.decoders.Decoder, where weights are stored compressed
    chip: Chip | None = None  # None: energy and area are not known
    kv_traffic_factor: Leaf = 1.0  # bytes that attention moves per byte of KV cache, > 0; 1 reads each once
    schedule: Schedule = flax.struct.field(pytree_node=False, default="overlapped")  # of the memories
