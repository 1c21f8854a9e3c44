"""Superblocks: streams of several types packed into one sequence of fixed-size memory blocks, and their size.

The order of the blocks, and the buffers of the decoder that reads them, are below.

Source: Cassandra, V-C and Fig. 11.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32, UInt8

__all__ = [
    "DEFAULT_BLOCK_BYTES",
    "Layout",
    "ReadOrder",
    "choose_layout",
    "expected_bits",
    "num_bits",
    "num_blocks",
    "pack",
    "read_order",
    "unpack",
]


#: A GPU's cache block. Cassandra, V-C, names the same number as the buffer's limit.
DEFAULT_BLOCK_BYTES = 128


@dataclass(frozen=True)
class Layout:
    """What writer and reader agree on beforehand; static and hashable.

    Attributes:
        blocks: slots of each type in one cycle; a superblock has as many blocks as all of them together.
        block_bytes: bytes of a block.
        limit_bytes: a type is skipped while more than this waits in its buffer.
    Raises:
        ValueError: no block, a negative number of them, a block without bytes, or a negative limit.
    """

    blocks: tuple[int, ...]
    block_bytes: int = DEFAULT_BLOCK_BYTES
    limit_bytes: int = DEFAULT_BLOCK_BYTES

    def __post_init__(self):
        if sum(self.blocks) < 1 or min(self.blocks) < 0:
            raise ValueError(
                f"blocks is {self.blocks}, it needs one number >= 0 for each type, and at least one above 0"
            )
        if self.block_bytes < 1 or self.limit_bytes < 0:
            raise ValueError(
                f"block_bytes is {self.block_bytes} and limit_bytes {self.limit_bytes}, allowed are >= 1 and >= 0"
            )

    @property
    def num_types(self) -> int:
        """Types of streams."""
        return len(self.blocks)

    @property
    def blocks_per_superblock(self) -> int:
        """Blocks, and slots of a cycle."""
        return sum(self.blocks)

    @property
    def slots(self) -> tuple[int, ...]:
        """Type of each slot of the cycle: every type evenly spread, at a tie the lower type first."""
        turns = [((turn + 0.5) / count, kind) for kind, count in enumerate(self.blocks) for turn in range(count)]
        return tuple(kind for _, kind in sorted(turns))


class ReadOrder(NamedTuple):
    """Blocks in the order in which the decoder reads them, and how its buffers fared.

    Attributes:
        types: type of each block of memory, −1 for those behind the last.
        blocks_read: blocks of each type.
        skips: times that a type's turn came while its buffer was over the limit.
        starved: blocks of a type that were served over the limit, because nothing else could let the decoder go on: some group
            takes more bits of that type than the limit.
        peak_bits: most bits of each type in the buffer, right after a block arrived. Without starvation at most
            8 · (limit_bytes + block_bytes).
        groups: value groups that could be decoded.
        complete: all of them; False with too few blocks, or with data of a type that has no slot.
    """

    types: Int32[Array, " block"]
    blocks_read: Int32[Array, " type"]
    skips: Int32[Array, " type"]
    starved: Int32[Array, " type"]
    peak_bits: Int32[Array, " type"]
    groups: Int32[Array, ""]
    complete: Bool[Array, ""]


def choose_layout(
    stream_bytes: Sequence[float],
    *,
    block_bytes: int = DEFAULT_BLOCK_BYTES,
    blocks_per_superblock: int = 16,
    limit_bytes: int | None = None,
) -> Layout:
    """Layout whose slots are apportioned to the types by their bytes: largest remainders, at least one slot each.

    Args:
        stream_bytes: total bytes of each type; a type without any gets no slot.
        limit_bytes: None for one block.
    Raises:
        ValueError: a negative size, nothing to store, or fewer blocks per superblock than types.
    """
    if min(stream_bytes, default=0) < 0 or not sum(stream_bytes) > 0:
        raise ValueError(f"stream_bytes is {tuple(stream_bytes)}, it needs sizes >= 0 and at least one above 0")
    present = [kind for kind, size in enumerate(stream_bytes) if size > 0]
    if blocks_per_superblock < len(present):
        raise ValueError(
            f"blocks_per_superblock is {blocks_per_superblock}, it must be at least the {len(present)} types with data"
        )
    quota = np.asarray(stream_bytes, float) * (blocks_per_superblock / sum(stream_bytes))
    blocks = np.floor(quota).astype(int)
    blocks[present] = np.maximum(blocks[present], 1)
    # Raising small types to one slot may give out too many slots; the type furthest above its quota then returns one.
    while blocks.sum() != blocks_per_superblock:
        surplus = blocks - quota
        if blocks.sum() < blocks_per_superblock:
            blocks[present[int(np.argmin(surplus[present]))]] += 1
        else:
            blocks[int(np.argmax(np.where(blocks > 1, surplus, -np.inf)))] -= 1
    limit = block_bytes if limit_bytes is None else limit_bytes
    return Layout(blocks=tuple(int(n) for n in blocks), block_bytes=block_bytes, limit_bytes=limit)


class _State(NamedTuple):
    cursor: Int32[Array, ""]
    blocks_read: Int32[Array, " type"]
    skips: Int32[Array, " type"]
    starved: Int32[Array, " type"]
    peak_bits: Int32[Array, " type"]
    groups: Int32[Array, ""]


def read_order(group_bits: Int32[Array, "type group"], layout: Layout, *, num_blocks: int) -> ReadOrder:
    """Run the controller's rule: which type each block of memory belongs to, and what the buffers hold on the way.

    A scan over the blocks of memory. The decoder takes any group as soon as all types have its bits. A type whose blocks have
    all been read is passed over without being counted as skipped.

    Args:
        group_bits: "type group"; bits of each type that each group of values takes, in order; at least 0.
        layout: static.
        num_blocks: static; blocks of memory to consider; `superblock.num_blocks` says how many are needed.
    Raises:
        ValueError: a wrong number of types, no group, or more bits than int32 holds.
    """
    if group_bits.ndim != 2 or group_bits.shape[0] != layout.num_types or group_bits.shape[1] < 1:
        raise ValueError(
            f"group_bits has shape {group_bits.shape}, it needs one row for each of {layout.num_types} types and a group"
        )
    block_bits = 8 * layout.block_bytes
    if num_blocks < 0 or (num_blocks + 1) * block_bits + 8 * layout.limit_bytes >= 2**31:
        raise ValueError(f"num_blocks is {num_blocks}, allowed are 0 to 2**28 bytes of blocks; split the tensor")
    num_types, num_groups = group_bits.shape
    slots = jnp.asarray(layout.slots, jnp.int32)
    # Bits of each type that all groups before a group take; the last column is everything.
    taken = jnp.pad(jnp.cumsum(group_bits.astype(jnp.int32), axis=1), ((0, 0), (1, 0)))
    # Groups that each number of blocks of a type, from 0 on, would let through; one look-up outside of the scan.
    supply = jnp.arange(num_blocks + 1, dtype=jnp.int32) * block_bits
    allowed = jax.vmap(lambda sums: jnp.searchsorted(sums, supply, side="right"))(taken).astype(jnp.int32) - 1
    kind_index = jnp.arange(num_types, dtype=jnp.int32)
    decodable = lambda blocks_read: jnp.min(allowed[kind_index, blocks_read])

    def step(state: _State, _):
        received = state.blocks_read * block_bits
        buffered = received - taken[:, state.groups]
        short = received < taken[:, jnp.minimum(state.groups + 1, num_groups)]
        left = received < taken[:, -1]
        over = buffered > 8 * layout.limit_bytes
        # The cycle from the cursor on, as slots; the first one that may be served ends the search.
        turn = (state.cursor + jnp.arange(slots.size, dtype=jnp.int32)) % slots.size
        kinds = slots[turn]
        may = (left & ~over)[kinds]
        starving = ~jnp.any(may)
        may = may | (starving & short[kinds])
        first = jnp.argmax(may)
        served = jnp.any(may) & (state.groups < num_groups)
        kind = jnp.where(served, kinds[first], -1)

        arrived = (kind_index == kind).astype(jnp.int32)
        skipped = (jnp.arange(slots.size) < first) & (left & over)[kinds] & ~starving
        blocks_read = state.blocks_read + arrived
        filled = buffered + arrived * block_bits
        return _State(
            cursor=jnp.where(served, (state.cursor + first.astype(jnp.int32) + 1) % slots.size, state.cursor),
            blocks_read=blocks_read,
            skips=state.skips.at[kinds].add(skipped.astype(jnp.int32)),
            starved=state.starved + arrived * starving.astype(jnp.int32),
            peak_bits=jnp.maximum(state.peak_bits, jnp.where(arrived > 0, filled, 0)),
            groups=decodable(blocks_read),
        ), kind

    none = jnp.zeros(num_types, jnp.int32)
    start = _State(jnp.int32(0), none, none, none, none, decodable(none))
    end, types = jax.lax.scan(step, start, None, length=num_blocks)
    return ReadOrder(
        types=types,
        blocks_read=end.blocks_read,
        skips=end.skips,
        starved=end.starved,
        peak_bits=end.peak_bits,
        groups=end.groups,
        complete=end.groups == num_groups,
    )


def pack(
    streams: Sequence[UInt8[Array, " bytes"]], order: ReadOrder, *, layout: Layout
) -> UInt8[Array, "superblock block byte"]:
    """Write the blocks of the streams in the order in which the decoder reads them.

    Args:
        streams: bytes of each type; bytes behind the last block that is read are not stored.
        order: from `read_order`; its number of blocks, rounded up to whole superblocks, is the size of the result.
        layout: static.
    Returns:
        Superblocks; blocks behind the last are zero.
    Raises:
        ValueError: a wrong number of streams.
    """
    if len(streams) != layout.num_types:
        raise ValueError(f"{len(streams)} streams came, the layout has {layout.num_types} types")
    rows = [
        jnp.pad(stream, (0, -stream.size % layout.block_bytes)).reshape(-1, layout.block_bytes) for stream in streams
    ]
    # One more row, of zeros, for memory behind the last block.
    blocks = jnp.concatenate([*rows, jnp.zeros((1, layout.block_bytes), jnp.uint8)])
    size = layout.blocks_per_superblock
    source = jnp.pad(
        _source_rows(order, [stream.size for stream in streams], layout),
        (0, -order.types.size % size),
        constant_values=blocks.shape[0] - 1,
    )
    return blocks[source].reshape(-1, size, layout.block_bytes)


def unpack(
    superblocks: UInt8[Array, "superblock block byte"],
    order: ReadOrder,
    *,
    layout: Layout,
    stream_bytes: Sequence[int],
) -> tuple[UInt8[Array, " bytes"], ...]:
    """The streams again, bit for bit: what the decoder is fed with.

    Args:
        stream_bytes: static; size of each stream that was packed.
        layout: static.
    Returns:
        A stream for each type, zero behind the last block that was read.
    Raises:
        ValueError: a wrong number of streams or of superblocks.
    """
    size = layout.blocks_per_superblock
    expected = (-(-order.types.size // size), size, layout.block_bytes)
    if len(stream_bytes) != layout.num_types or superblocks.shape != expected:
        raise ValueError(
            f"superblocks {superblocks.shape} and {len(stream_bytes)} streams came; this order and layout have superblocks "
            f"{expected} and {layout.num_types} streams"
        )
    rows = [-(-count // layout.block_bytes) for count in stream_bytes]
    source = _source_rows(order, stream_bytes, layout)
    flat = superblocks.reshape(-1, layout.block_bytes)[: source.size]
    blocks = jnp.zeros((sum(rows), layout.block_bytes), jnp.uint8).at[source].set(flat, mode="drop")
    parts = jnp.split(blocks, np.cumsum(rows)[:-1])
    return tuple(part.reshape(-1)[:count] for part, count in zip(parts, stream_bytes))


def _source_rows(order: ReadOrder, stream_bytes: Sequence[int], layout: Layout) -> Int32[Array, " block"]:
    """Row of each block of memory among the blocks of all streams, stacked; behind the last row where there is none."""
    rows = np.array([-(-count // layout.block_bytes) for count in stream_bytes], np.int32)
    kinds = jnp.arange(layout.num_types, dtype=jnp.int32)
    mine = order.types[:, None] == kinds[None]
    # The n-th block of a type in memory is the n-th block of its stream.
    nth = jnp.sum(jnp.where(mine, jnp.cumsum(mine.astype(jnp.int32), axis=0), 0), axis=1, dtype=jnp.int32) - 1
    here = (order.types >= 0) & (nth < jnp.asarray(rows)[order.types])
    return jnp.where(
        here, jnp.asarray(np.cumsum(rows, dtype=np.int32) - rows)[order.types] + nth, jnp.int32(rows.sum())
    )


def num_blocks(stream_bits: Sequence[int], layout: Layout) -> int:
    """Blocks that the streams take, exactly: each type's last block is padded."""
    if len(stream_bits) != layout.num_types:
        raise ValueError(f"{len(stream_bits)} streams came, the layout has {layout.num_types} types")
    return sum(-(-int(bits) // (8 * layout.block_bytes)) for bits in stream_bits)


def num_bits(stream_bits: Sequence[int], layout: Layout) -> int:
    """Bits of the superblocks that the streams take, exactly: the last superblock is padded too. Headers are not counted."""
    superblocks = -(-num_blocks(stream_bits, layout) // layout.blocks_per_superblock)
    return 8 * superblocks * layout.blocks_per_superblock * layout.block_bytes


def expected_bits(
    mean_bits: Float[Array, "*#b type"], num_values: Float[Array, "*#b"] | float, *, layout: Layout
) -> Float[Array, "*b"]:
    """Expected bits of the superblocks of a tensor, padding included.

    Payload, half a block for each type with a slot, and (blocks per superblock − 1) / 2 blocks at the end: ends are taken to
    fall anywhere in a block and in a superblock, which holds once a stream is a few blocks long. Linear, no kinks: the gradient
    by the mean bits is the number of values, padding has none.

    Args:
        mean_bits: "*b type"; mean bits of each type per stored value.
        num_values: "*b"; values of the tensor.
        layout: static.
    Raises:
        ValueError: a wrong number of types.
    """
    mean_bits = jnp.asarray(mean_bits)
    if mean_bits.shape[-1] != layout.num_types:
        raise ValueError(f"mean_bits has shape {mean_bits.shape}, the layout has {layout.num_types} types")
    present = sum(count > 0 for count in layout.blocks)
    padding_blocks = 0.5 * present + 0.5 * (layout.blocks_per_superblock - 1)
    return jnp.sum(mean_bits, axis=-1) * num_values + 8 * layout.block_bytes * padding_blocks
