"""Efficiency of superblock streaming: which share of the bytes that are moved is of use.

Streams of several types (bitmap, exponents, mantissas, ...) are cut into blocks, and a superblock of several blocks is loaded
and evicted as a whole. Each stream's last block is padded, and so is the last superblock of a tensor; a step that needs some of
the streams only loads the others too.

Source: Cassandra, V-C: superblocks of cache blocks, in words.
Departs: the paper prints no size. Ends are taken to fall anywhere in a block and in a superblock, so that half a block is
    padded for each stream and (blocks per superblock - 1) / 2 blocks at the end. That holds once a stream is a few blocks
    long; a shorter one is padded by more, an empty one not at all.
"""

from __future__ import annotations

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.numerics.axes import same_rank
from hwmodels.numerics.scalars import Number, as_float

__all__ = ["CACHE_BLOCK_BYTES", "SuperblockTraffic", "superblock_traffic"]

#: A GPU's cache block; Cassandra, V-C, names the same number as the decoder's buffer limit.
CACHE_BLOCK_BYTES = 128.0


@flax.struct.dataclass
class SuperblockTraffic:
    """Expected bytes of one pass over tensors in superblocks; leaves are "*b"."""

    payload_bytes: Float[Array, "*b"]  # what the streams hold
    useful_bytes: Float[Array, "*b"]  # the part of it that the step needs
    moved_bytes: Float[Array, "*b"]  # all superblocks, padding included
    access_bytes: Float[Array, "*b"]  # one superblock: the size of an access to memory

    @property
    def efficiency(self) -> Float[Array, "*b"]:
        """Useful bytes per byte moved, in [0, 1)."""
        return self.useful_bytes / self.moved_bytes

    @property
    def padding_overhead(self) -> Float[Array, "*b"]:
        """Padding bytes per payload byte, > 0; infinite without payload."""
        return (self.moved_bytes - self.payload_bytes) / self.payload_bytes


def superblock_traffic(
    stream_bytes: Float[Array, "*b stream"],
    *,
    blocks_per_superblock: Number,
    block_bytes: Number = CACHE_BLOCK_BYTES,
    useful_share: Number = 1.0,
    num_tensors: Number = 1.0,
) -> SuperblockTraffic:
    """Bytes moved to stream tensors whose data are packed into superblocks.

    Args:
        stream_bytes: "*b stream", >= 0; of each type that has blocks in a superblock, all tensors together.
        blocks_per_superblock: "*b", >= 1 and at least the number of streams.
        block_bytes: "*b", > 0.
        useful_share: "*b stream" or one number, in [0, 1]; the part of each stream that the step needs.
        num_tensors: "*b", >= 1; tensors that are padded each by itself.
    Returns:
        Linear in the stream sizes and in the number of tensors, smooth in everything: counts are real numbers.
    Raises:
        ValueError: no streams.
    """
    streams = jnp.asarray(as_float(stream_bytes))
    if streams.ndim == 0 or streams.shape[-1] == 0:
        raise ValueError(f"stream_bytes has shape {streams.shape}; it needs a last axis of >= 1 streams")
    numbers = map(as_float, (blocks_per_superblock, block_bytes, num_tensors))
    payload, blocks, block_bytes, tensors = same_rank(jnp.sum(streams, axis=-1), *numbers)
    padding_blocks = 0.5 * streams.shape[-1] + 0.5 * (blocks - 1.0)
    moved = payload + tensors * block_bytes * padding_blocks
    streams, shares = same_rank(streams, as_float(useful_share))
    useful = jnp.sum(streams * shares, axis=-1)
    return SuperblockTraffic(
        *jnp.broadcast_arrays(payload, useful, moved, jnp.asarray(block_bytes * blocks).astype(moved.dtype))
    )
