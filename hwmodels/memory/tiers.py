"""Several memories side by side: where tensors lie.

A tensor class (dense weights, cached experts, uncached ones, KV cache, ...) may be spread over several tiers.

Source: ELMoE-3D, 5.1 (coupled and decoupled bandwidth), 7.1 (what lies in which tier).
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.device import MemoryTier
from hwmodels.numerics.scalars import Leaf, Number, as_arrays, as_float, same_rank

__all__ = [
    "CACHE_BLOCK_BYTES",
    "half_efficiency_bytes",
    "place_in_order",
    "superblock_padding",
]

# Efficiency of superblock streaming: which share of the bytes that are moved is of use.

#: A GPU's cache block; Cassandra, V-C, names the same number as the decoder's buffer limit.
CACHE_BLOCK_BYTES = 128.0


def superblock_padding(
    num_streams: int,
    *,
    blocks_per_superblock: Number,
    block_bytes: Number = CACHE_BLOCK_BYTES,
    num_tensors: Number = 1.0,
) -> Float[Array, "*b"]:
    """Expected bytes that are moved beside the data of tensors that are packed into superblocks, in one pass over them.

    Args:
        num_streams: static, >= 1; types of data that have blocks in a superblock.
        blocks_per_superblock: "*b", >= 1 and at least the number of streams.
        block_bytes: "*b", > 0.
        num_tensors: "*b", >= 1; tensors that are padded each by itself.
    Returns:
        half a block for each stream and half a superblock, of each tensor; smooth in everything: counts are real numbers.
    """
    blocks, size, tensors = as_arrays(blocks_per_superblock, block_bytes, num_tensors)
    return tensors * size * (0.5 * num_streams + 0.5 * (blocks - 1.0))


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
    reached = as_float(tier.bandwidth_bytes_per_s) * as_float(tier.efficiency)
    return reached * as_float(tier.access_latency_s) / under_way


def place_in_order(tiers: Sequence[MemoryTier], *size_bytes: Number) -> Float[Array, "... class tier"]:
    """Fill the tiers one after the other with classes one after the other; what does not fit spills into the next tier.

    Args:
        tiers: static number, the first is filled first; leaves "*b". The last takes all that is left, beyond its capacity
            if need be.
        size_bytes: "*b" of each class, >= 0, the first to be placed first.
    Returns:
        bytes of each class in each tier, which sum to the size.
    Raises:
        ValueError: no tier, or no class.
    Gradient: exact and piecewise linear. Where a class ends just where a tier does, that of slightly larger capacities; at
        sizes and capacities of 0 that from above.
    """
    if not tiers or not size_bytes:
        raise ValueError(f"{len(tiers)} tiers and {len(size_bytes)} classes came; both need at least one")
    stacked = lambda numbers: jnp.stack(jnp.broadcast_arrays(*(jnp.asarray(as_float(n)) for n in numbers)), axis=-1)
    sizes, capacities = stacked(size_bytes), stacked([tier.capacity_bytes for tier in tiers])
    sizes, capacities = same_rank(sizes, capacities.astype(sizes.dtype))
    ends = jnp.cumsum(sizes, axis=-1)
    starts = jnp.concatenate([jnp.zeros_like(ends[..., :1]), ends[..., :-1]], axis=-1)[..., None]
    ends, room = ends[..., None], jnp.cumsum(capacities, axis=-1)[..., None, :]
    infinity = jnp.full_like(room[..., :1], jnp.inf)
    low = jnp.concatenate([-infinity, room[..., :-1]], axis=-1)
    high = jnp.concatenate([room[..., :-1], infinity], axis=-1)

    def within(x):
        """Comparisons instead of `clip`, so that a tie counts as lying below the border in every tier."""
        return jnp.where(x > low, jnp.where(x <= high, x, high), low)

    # The difference of two running sums has the rounding error of the sums; a class that fits as a whole needs none.
    whole = (starts > low) & (ends <= high)
    return jnp.where(whole, sizes[..., None], within(ends) - within(starts))
