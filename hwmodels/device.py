"""A device: what computes, what remembers, what decodes compressed weights, and what all of it costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwmodels.chip.blocks import Technology, mac_energy
from hwmodels.decoders.encoder import Encoder
from hwmodels.numerics.fields import (
    AREA,
    BYTE_RATE,
    CAPACITY,
    ENERGY,
    FLOP_RATE,
    LATENCY,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    choice,
    flag,
    number,
    part,
    short_line,
    tree_html,
)
from hwmodels.numerics.scalars import Leaf, as_float

#: How several memories share time: all at once, so that the slowest decides, or one after the other.
Schedule: TypeAlias = Literal["overlapped", "serial"]


@flax.struct.dataclass
class MemoryTier:
    """A memory from which weights and KV are streamed. Every field but the flags is a leaf, "*b".

    Coupled: each compute unit has its own part of the banks, so that the bandwidth is that of the units in use.
    On chip: SRAM of the die itself. By a technology it takes area by its capacity; it has no interface and no price of its own.
    """

    bandwidth_bytes_per_s: Leaf = number(BYTE_RATE)  # of the data sheet, > 0
    efficiency: Leaf = number(SHARE)  # share of the bandwidth that streaming reaches, in (0, 1]
    capacity_bytes: Leaf = number(CAPACITY)  # > 0
    access_latency_s: Leaf = number(LATENCY, default=None)  # from a request to its data, >= 0; None: no access waits
    outstanding_accesses: Leaf = number(POSITIVE, default=None)  # under way at once, which hides latency, > 0; None: 1
    #: Access that reaches half the bandwidth, >= 0; None: as the latency has it.
    given_half_bytes: Leaf = number(NOT_NEGATIVE, default=None)
    energy_j_per_bit: Leaf = number(ENERGY, default=None)  # of moving a bit, >= 0; None: not known
    coupled: bool = flag()
    on_chip: bool = flag()


@flax.struct.dataclass
class OnChipPath:
    """What all bytes of a step pass between its memories and the compute unit. Every field is a leaf, "*b".

    A buffer first, the L2 cache of a GPU or the scratchpad of an NPU, then links: an interconnect, or a network on chip. Where
    the device has decoders, their place says on which of the two values are coded.
    """

    buffer_bytes_per_s: Leaf = number(BYTE_RATE)  # that it delivers, > 0
    link_bytes_per_s: Leaf = number(BYTE_RATE, default=None)  # of all links together, > 0; None: as the buffer
    #: Of moving a bit over the links, >= 0; None: in the energy of arithmetic.
    link_energy_j_per_bit: Leaf = number(ENERGY, default=None)


@flax.struct.dataclass
class Superblocks:
    """How compressed tensors lie in memory: in groups of blocks that are loaded as a whole. Every field is a leaf, "*b"."""

    blocks_per_superblock: Leaf = number(POSITIVE)  # > 0
    block_bytes: Leaf = number(POSITIVE, default=128.0)  # of a cache block, > 0


@flax.struct.dataclass
class ExtraRows:
    """Instructions of the rows of a product beyond its first, in kernels that multiply vectors. Every field is a leaf, "*b".

    A product of m rows by k x n weights of fewer than 16 bits takes
    2 * instructions * k * n * min(m - 1, until - 1) / vector_flops_per_s longer: an instruction takes as long as a multiply-add
    of a lane. Libraries multiply rows by weights of 16 bits on matrix units.
    """

    instructions: Leaf = number(NOT_NEGATIVE)  # per weight and further row, >= 0
    until: Leaf = number(POSITIVE, default=16.0)  # rows from which on kernels use tiles, and a further row adds nothing


@flax.struct.dataclass
class Chip:
    """Power and area beside memory and decoder. Every field is a leaf, "*b"."""

    energy_j_per_flop: Leaf = number(ENERGY)  # of arithmetic with its on-chip traffic, >= 0
    static_power_w: Leaf = number(NOT_NEGATIVE)  # drawn whatever is done, >= 0
    #: Of the die without decoders, > 0; with `element_area_m2` without the matrix unit's elements too. None: not known.
    area_m2: Leaf = number(AREA, default=None)
    element_area_m2: Leaf = number(
        AREA, default=None
    )  # of one element of the matrix unit, > 0; None: area by the unit's size is not known


@flax.struct.dataclass
class Device:
    """A processor with its memories. Every field is a leaf, "*b", or a tree of leaves: any of them may be swept or
    differentiated by.

    Without a `matrix_unit` products of matrices run at the roof's rate, peak times efficiency; with one they take the time that
    it says.
    """

    peak_flops_per_s: Leaf = number(
        FLOP_RATE
    )  # dense 16-bit matrix products of the data sheet, > 0; a multiply-add counts 2
    compute_efficiency: Leaf = number(SHARE)  # share of the peak that large products reach, in (0, 1]
    memory: MemoryTier = part(MemoryTier)  # filled first, and where activations go
    operator_latency_s: Leaf = number(LATENCY)  # fixed time of one operator launch, not overlapped with anything, >= 0
    spill: tuple[MemoryTier, ...] = ()  # takes what the memory before it cannot hold
    matrix_unit: Any = None  # a hwmodels.compute.unit.ComputeUnit; None: everything runs at the roof's rate
    decoder: Any = None  # a hwmodels.decoders.Decoder, where weights are stored compressed
    chip: Chip | None = None  # None: energy and area are not known, or follow from the technology
    kv_traffic_factor: Leaf = number(
        POSITIVE, default=1.0
    )  # bytes that attention moves per byte of KV cache, > 0; 1 reads each once
    #: Of everything that is no product of matrices, > 0; None: the roof's rate.
    vector_flops_per_s: Leaf = number(FLOP_RATE, default=None)
    schedule: Schedule = choice("overlapped", "serial")  # of the memories
    group: Any = None  # a hwmodels.parallel.group.DeviceGroup, of which this is one device; None: it works alone
    placement: Any = None  # a hwmodels.memory.placement.PlacementPolicy; None: KV, dense weights, experts in this order
    #: How it is made, which energy, area and price follow from; instead of a chip. None: not known.
    technology: Technology | None = part(Technology, default=None)
    #: Between memories and compute unit; None: it keeps up, whatever passes it.
    on_chip_path: OnChipPath | None = part(OnChipPath, default=None)
    #: Where new keys and values are stored compressed; None: encoding them takes nothing.
    encoder: Encoder | None = part(Encoder, default=None)
    #: Of compressed tensors; None: nothing is padded.
    superblocks: Superblocks | None = part(Superblocks, default=None)
    #: Beside all other times of a product; None: a row takes what the unit says.
    extra_rows: ExtraRows | None = part(ExtraRows, default=None)

    @property
    def tiers(self) -> tuple[MemoryTier, ...]:
        """All memories, in the order in which they are filled."""
        return (self.memory, *self.spill)

    @property
    def knows_energy(self) -> bool:
        """Whether the device says what arithmetic takes: in its [chip], or by its technology."""
        return self.chip is not None or self.technology is not None

    @property
    def energy_j_per_flop(self) -> Array | None:
        """Energy of arithmetic, "*b", half a multiply-add each; None: not known."""
        if self.chip is not None:
            return jnp.asarray(as_float(self.chip.energy_j_per_flop))
        if self.technology is None:
            return None
        return mac_energy(self.technology.node_m, self.technology.number_format) / 2.0

    def __repr__(self) -> str:
        return short_line(self, "peak_flops_per_s", "memory.bandwidth_bytes_per_s", "memory.capacity_bytes")

    def _repr_html_(self) -> str:
        return tree_html(self)


def stack_devices(devices: Sequence[Device]) -> Device:
    """Devices of one structure as one, whose leaves are "device ...": what `jax.vmap` maps over.

    Raises:
        ValueError: no devices; devices that differ in more than numbers, by the first part that does.
    """
    if not devices:
        raise ValueError("no devices came; give at least one")
    for place, device in enumerate(devices):
        if difference := _difference(devices[0], device, ""):
            name, first, other = difference
            raise ValueError(
                f"{name} is {first} in device 0 and {other} in device {place}; stack devices that differ in numbers alone, and "
                "map over others one by one"
            )
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(as_float(leaf)) for leaf in leaves]), *devices)


def _difference(first: Any, other: Any, name: str) -> tuple[str, str, str] | None:
    """The first part in which two trees differ by more than a number, and what it is in each; None: there is none."""
    dot = f"{name}." if name else ""
    if type(first) is type(other) and isinstance(first, (tuple, list)):
        if len(first) != len(other):
            return name, f"{len(first)} parts", f"{len(other)} parts"
        pairs = [(f"{dot}{place}", *pair, False) for place, pair in enumerate(zip(first, other, strict=True))]
    elif type(first) is type(other) and dataclasses.is_dataclass(first):
        pairs = [
            (dot + field.name, *(getattr(part, field.name) for part in (first, other)), not _is_leaf(field))
            for field in dataclasses.fields(first)
        ]
    else:
        one, two = (_kind(part) for part in (first, other))
        return None if one == two else (name, one, two)
    for path, one, two, is_static in pairs:
        if is_static and one != two:
            return path, f"{one!r:.60}", f"{two!r:.60}"
        if not is_static and (difference := _difference(one, two, path)):
            return difference
    return None


def _is_leaf(field: dataclasses.Field) -> bool:
    return field.metadata.get("pytree_node", True)


def _kind(part: Any) -> str:
    """What a part is, but for its numbers."""
    if part is None:
        return "None"
    if dataclasses.is_dataclass(part) or isinstance(part, (tuple, list)):
        return f"a {type(part).__name__}"
    shape = np.shape(part)
    return f"an array of shape {shape}" if shape else "a number"
