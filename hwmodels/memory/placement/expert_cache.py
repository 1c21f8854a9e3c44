"""Experts cached in the first memory, in the room that all else leaves: whole ones, their leading bits, a draft's copies.

KV, dense weights and a draft of its own fill the memories first. An embedding table that is no head stays outside: steps read
single rows of it. Experts that are not cached lie behind the first memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.device import MemoryTier
from hwmodels.memory.expert_hits import HIT_RULES, CharacteristicTime, HitRule
from hwmodels.memory.placement.interface import TierShares, expert_reads, shares_of, stored_bytes, with_first
from hwmodels.memory.tiers import place_in_order
from hwmodels.network.operators.expert_sharing import ExpertReads
from hwmodels.network.operators.work import OperatorWork
from hwmodels.network.routing import UNIFORM
from hwmodels.numerics.fields import POSITIVE, flag, number, tag, variant
from hwmodels.numerics.scalars import Leaf, Number, as_float, with_last_axis

__all__ = ["BitSlices", "DraftCopies", "ExpertCache"]

#: Half of an 8-bit weight, with 16-bit scales of 32 weights.
SLICE_BITS = 4.5


@flax.struct.dataclass
class ExpertCache:
    """Whole experts.

    Source: ELMoE-3D, 7.1: static weights and the KV cache first, remaining capacity to the scheme; 7: experts under LRU.
    """

    title: ClassVar[str] = "a cache of whole experts in what KV and dense weights leave"
    kind: str = tag("expert_cache")

    hits: HitRule = variant(HIT_RULES, default=CharacteristicTime())
    whole: bool = flag()  # the same whole number of experts in each layer

    def shares(self, tiers: Sequence[MemoryTier], work: OperatorWork) -> TierShares:
        """See `PlacementPolicy`."""
        return _shares(self, tiers, work, leading_bits=expert_reads(work).stored_bits, leading_read=1.0)

    def draft_experts(self, tiers: Sequence[MemoryTier], work: OperatorWork) -> Float[Array, "*b"]:
        """See `PlacementPolicy`."""
        return _cached(self, tiers, work, expert_reads(work).stored_bits)[0]


@flax.struct.dataclass
class BitSlices:
    """Leading bits of experts, which a draft reads alone.

    A step of the whole network reads the leading bits of a cached expert in the first memory and the others behind it. Once all
    leading bits fit, the others are cached as well.

    Source: ELMoE-3D, 4.2 and Algorithm 1: MSB slices of cached experts in HB, LSB slices and uncached experts in EXT.
    """

    title: ClassVar[str] = "a cache of the experts' leading bits in what KV and dense weights leave"
    kind: str = tag("bit_slices")

    slice_bits: Leaf = number(POSITIVE, default=SLICE_BITS)  # leading bits of each weight, their scales included
    hits: HitRule = variant(HIT_RULES, default=CharacteristicTime())
    whole: bool = flag()  # the same whole number of experts in each layer

    def shares(self, tiers: Sequence[MemoryTier], work: OperatorWork) -> TierShares:
        """See `PlacementPolicy`."""
        read, leading = jnp.asarray(as_float(expert_reads(work).read_bits)), as_float(self.slice_bits)
        part = jnp.where(read > leading, leading / jnp.where(read > 0, read, 1.0), 1.0)
        return _shares(self, tiers, work, leading_bits=leading, leading_read=part)

    def draft_experts(self, tiers: Sequence[MemoryTier], work: OperatorWork) -> Float[Array, "*b"]:
        """See `PlacementPolicy`."""
        return _cached(self, tiers, work, self.slice_bits)[0]


@flax.struct.dataclass
class DraftCopies:
    """Copies of experts that only a draft reads, see `DraftCost.separate_weights`; the target's own once all copies fit.

    Source: ELMoE-3D, 7.1: Quant-SD keeps independent copies of draft and target weights.
    """

    title: ClassVar[str] = "a cache of the draft's copies of experts in what KV and dense weights leave"
    kind: str = tag("draft_copies")

    hits: HitRule = variant(HIT_RULES, default=CharacteristicTime())
    whole: bool = flag()  # the same whole number of experts in each layer

    def shares(self, tiers: Sequence[MemoryTier], work: OperatorWork) -> TierShares:
        """See `PlacementPolicy`."""
        reads = expert_reads(work)
        return _shares(self, tiers, work, leading_bits=reads.copy_bits, leading_read=reads.drafting)

    def draft_experts(self, tiers: Sequence[MemoryTier], work: OperatorWork) -> Float[Array, "*b"]:
        """See `PlacementPolicy`."""
        return _cached(self, tiers, work, expert_reads(work).copy_bits)[0]


_Cache = ExpertCache | BitSlices | DraftCopies


def _cached(
    cache: _Cache, tiers: Sequence[MemoryTier], work: OperatorWork, leading_bits: Number
) -> tuple[Float[Array, "*b"], Float[Array, "*b"]]:
    """Experts of a layer whose leading bits, and whose other bits, the first memory has room for beside everything else."""
    stored, reads = stored_bytes(work), expert_reads(work)
    taken = reads.bytes_placed_before + stored.kv + stored.dense - stored.by_the_row + reads.bytes_before_experts
    room = as_float(tiers[0].capacity_bytes) - taken
    room = jnp.where(room > 0, room, 0.0)
    part = as_float(leading_bits) / jnp.where(reads.stored_bits > 0, reads.stored_bits, 1.0)
    leading = stored.experts * jnp.where(part < 1.0, part, 1.0)
    first = _experts(cache, reads.num_experts, room, leading)
    used = leading * first / jnp.where(reads.num_experts > 0, reads.num_experts, 1.0)
    return first, _experts(cache, reads.num_experts, jnp.where(room > used, room - used, 0.0), stored.experts - leading)


def _experts(
    cache: _Cache, num_experts: Number, room: Float[Array, "*b"], all_bytes: Float[Array, "*b"]
) -> Float[Array, "*b"]:
    """Experts of which so many bytes fit; all where they have none."""
    some = all_bytes > 0
    share = room / jnp.where(some, all_bytes, 1.0)
    count = num_experts * jnp.where(some & (share < 1.0), share, 1.0)
    return jnp.asarray(jax.lax.stop_gradient(jnp.floor(count)) if cache.whole else count)


def _spread_out(reads: ExpertReads) -> ExpertReads:
    """Leaves "*b 1", but for the routing, which is one for all."""
    alone = with_last_axis(dataclasses.replace(reads, routing=UNIFORM))
    return dataclasses.replace(alone, routing=reads.routing)


def _shares(
    cache: _Cache, tiers: Sequence[MemoryTier], work: OperatorWork, *, leading_bits: Number, leading_read: Number
) -> TierShares:
    """Shares of a step that reads `leading_read` of its experts' bytes among the leading bits."""
    stored, reads = stored_bytes(work), expert_reads(work)
    # Both at once: a rule may have to solve an equation for each.
    held = jnp.stack(jnp.broadcast_arrays(*_cached(cache, tiers, work, leading_bits)), axis=-1)
    hits = cache.hits.hit_share(_spread_out(reads), held)
    hit_share = as_float(leading_read) * hits[..., 0] + (1.0 - as_float(leading_read)) * hits[..., 1]
    dense = stored.dense - stored.by_the_row
    placed = place_in_order(
        tiers, reads.bytes_placed_before, stored.kv, dense, reads.bytes_before_experts, stored.experts
    )
    return TierShares(
        kv=shares_of(placed[..., 1, :]),
        dense=shares_of(placed[..., 2, :]),
        experts=with_first(hit_share, shares_of(placed[..., 4, 1:])),
    )
