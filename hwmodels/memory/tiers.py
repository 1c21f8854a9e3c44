"""Several memories side by side: where tensors lie.

A tensor class (dense weights, cached experts, uncached ones, KV cache, ...) may be spread over several tiers.

Source: ELMoE-3D, 5.1 (coupled and decoupled bandwidth), 7.1 (what lies in which tier).
"""

from __future__ import annotations

from collections.abc import Sequence

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.device import MemoryTier
from hwmodels.numerics.scalars import Leaf, Number, as_float, same_rank, select

__all__ = [
    "CACHE_BLOCK_BYTES",
    "Placement",
    "SuperblockTraffic",
    "half_efficiency_bytes",
    "place_in_order",
    "superblock_traffic",
]

# Efficiency of superblock streaming: which share of the bytes that are moved is of use.

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


@flax.struct.dataclass
class Placement:
    """Where the bytes of each class lie."""

    stored_bytes: Float[Array, "*b class tier"]  # sums to the sizes of the classes
    overflow_bytes: Float[Array, "*b tier"]  # by which a tier holds more than its capacity


def half_efficiency_bytes(tier: MemoryTier) -> Leaf:
    """Size of an access that reaches half the bandwidth, "*b", in bytes: as given, or by Little's law.

    0 where neither is known. With n accesses under way, a bytes each take latency / n + a / bandwidth: half of the
    bandwidth at a = bandwidth * latency / n.
    """
    if tier.given_half_bytes is not None:
        return as_float(tier.given_half_bytes)
    if tier.access_latency_s is None:
        return 0.0
    under_way = 1.0 if tier.outstanding_accesses is None else as_float(tier.outstanding_accesses)
    return _bandwidth(tier) * as_float(tier.access_latency_s) / under_way


def place_in_order(
    tiers: Sequence[MemoryTier], size_bytes: Float[Array, "*b class"], *, order: Sequence[int] | None = None
) -> Placement:
    """Fill the tiers one after the other with the classes one after the other; what does not fit spills into the next tier.

    Args:
        tiers: static number, the first is filled first; leaves "*b". The last takes all that is left, beyond its capacity
            if need be.
        size_bytes: "*b class", >= 0.
        order: static; all classes, the first to be placed first. As they come, unless given.
    Raises:
        ValueError: no tier, no class, or an order that is not one of the classes.
    Gradient: exact and piecewise linear. Where a class ends just where a tier does, that of slightly larger capacities; at
        sizes and capacities of 0 that from above.
    """
    order, sizes = _order(order, size_bytes), _sizes(tiers, size_bytes)
    sizes, capacities = same_rank(sizes, _capacities(tiers, sizes.dtype))
    rank = np.argsort(order)
    ends = jnp.cumsum(sizes[..., np.array(order)], axis=-1)
    starts = jnp.concatenate([jnp.zeros_like(ends[..., :1]), ends[..., :-1]], axis=-1)
    starts, ends = starts[..., rank, None], ends[..., rank, None]
    room = jnp.cumsum(capacities, axis=-1)[..., None, :]
    infinity = jnp.full_like(room[..., :1], jnp.inf)
    low = jnp.concatenate([-infinity, room[..., :-1]], axis=-1)
    high = jnp.concatenate([room[..., :-1], infinity], axis=-1)

    def within(x):
        """Comparisons instead of `clip`, so that a tie counts as lying below the border in every tier."""
        return jnp.where(x > low, jnp.where(x <= high, x, high), low)

    # The difference of two running sums has the rounding error of the sums; a class that fits as a whole needs none.
    whole = (starts > low) & (ends <= high)
    stored = jnp.where(whole, sizes[..., None], within(ends) - within(starts))
    excess = jnp.sum(sizes, axis=-1) - room[..., 0, -1]
    overflow = select(jnp.arange(len(tiers)) == len(tiers) - 1, jax.nn.relu(excess)[..., None], 0.0)
    return Placement(stored_bytes=stored, overflow_bytes=overflow)


def _bandwidth(tier: MemoryTier) -> Leaf:
    """What streams reach with all compute units in use."""
    return as_float(tier.bandwidth_bytes_per_s) * as_float(tier.efficiency)


def _capacities(tiers: Sequence[MemoryTier], dtype: jnp.dtype) -> Float[Array, "*b tier"]:
    capacities = [jnp.asarray(as_float(tier.capacity_bytes)).astype(dtype) for tier in tiers]
    return jnp.stack(jnp.broadcast_arrays(*capacities), axis=-1)


def _sizes(tiers: Sequence[MemoryTier], size_bytes: Number) -> Float[Array, "*b class"]:
    sizes = jnp.asarray(as_float(size_bytes))
    if not tiers or sizes.ndim == 0 or sizes.shape[-1] == 0:
        raise ValueError(f"{len(tiers)} tiers and sizes of shape {sizes.shape} came; both need at least one")
    return sizes


def _order(order: Sequence[int] | None, size_bytes: Number) -> tuple[int, ...]:
    classes = range(jnp.shape(size_bytes)[-1])
    if order is None:
        return tuple(classes)
    if sorted(order) != list(classes):
        raise ValueError(
            f"order is {tuple(order)}; it must name each of the {len(classes)} classes once, 0 to {len(classes) - 1}"
        )
    return tuple(order)
