"""A device as the roofline sees it: one compute rate, one memory, a fixed cost per operator."""

from __future__ import annotations

import flax.struct

from hwmodels.scalars import Leaf


@flax.struct.dataclass
class MemoryTier:
    """A memory from which weights and KV are streamed. Every field is a leaf, "*b"."""

    bandwidth_bytes_per_s: Leaf  # of the data sheet, > 0
    efficiency: Leaf  # share of the bandwidth that streaming reaches, in (0, 1]
    capacity_bytes: Leaf  # > 0


@flax.struct.dataclass
class Device:
    """A processor with its memory. Every field is a leaf, "*b": any of them may be swept or differentiated by."""

    peak_flops_per_s: Leaf  # dense 16-bit matrix products of the data sheet, > 0; a multiply-add counts 2
    compute_efficiency: Leaf  # share of the peak that large products reach, in (0, 1]
    memory: MemoryTier
    scratchpad_bytes: Leaf  # last on-chip level shared by all compute units (L2 cache or scratchpad), > 0
    operator_latency_s: Leaf  # fixed time of one operator launch, not overlapped with anything, >= 0
