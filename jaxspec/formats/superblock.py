"""Superblocks: streams of several types packed into one sequence of fixed-size memory blocks, and their size.

The order of the blocks, and the buffers of the decoder that reads them, are those of `superblock_order`.

Source: Cassandra, V-C and Fig. 11.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int32, UInt8

from jaxspec.formats.superblock_order import DEFAULT_BLOCK_BYTES, Layout, ReadOrder, choose_layout, read_order

__all__ = [
    "DEFAULT_BLOCK_BYTES",
    "Layout",
    "ReadOrder",
    "choose_layout",
    "expected_bits",
    "num_bits",
    "num_blocks",
    "pack",
    "padding_overhead",
    "read_order",
    "unpack",
]


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


def padding_overhead(stream_bits: Sequence[int], layout: Layout) -> float:
    """Padding bytes per payload byte, exactly; at least 0, and 0 without payload."""
    payload = sum(int(bits) for bits in stream_bits)
    return num_bits(stream_bits, layout) / payload - 1 if payload else 0.0


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
