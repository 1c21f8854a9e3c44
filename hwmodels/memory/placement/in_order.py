"""One memory after the other, each class spread over the layers evenly; and everything outside the first memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.device import MemoryTier
from hwmodels.memory.placement.interface import TierShares, expert_reads, shares_of, spread, stored_bytes
from hwmodels.network.operators.work import OperatorWork
from hwmodels.numerics.fields import tag
from hwmodels.numerics.scalars import as_float

__all__ = ["AllExternal", "ExpertsFirst", "InOrder"]


@flax.struct.dataclass
class InOrder:
    """KV, dense weights and experts fill the memories in this order; what does not fit spills into the next.

    Departs: a draft of its own is priced as if it had the memories for itself.
    """

    title: ClassVar[str] = "KV first, then dense weights, then experts, all of them alike"
    kind: str = tag("in_order")

    def shares(self, tiers: Sequence[MemoryTier], work: OperatorWork) -> TierShares:
        """See `PlacementPolicy`."""
        stored = stored_bytes(work)
        placed = shares_of(spread(tiers, stored.kv, stored.dense, stored.experts))
        return TierShares(*(placed[..., i, :] for i in range(3)))

    def draft_experts(self, tiers: Sequence[MemoryTier], work: OperatorWork) -> Float[Array, "*b"]:
        """See `PlacementPolicy`."""
        return self.shares(tiers, work).experts[..., 0] * expert_reads(work).num_experts


@flax.struct.dataclass
class ExpertsFirst:
    """Experts fill the first memory, whose banks compute, and spill behind it; KV and dense weights follow, last memory first.

    Source: ELMoE-3D, 7: baselines that process experts in memory.
    """

    title: ClassVar[str] = "experts in the first memory, KV and dense weights behind them"
    kind: str = tag("experts_first")

    def shares(self, tiers: Sequence[MemoryTier], work: OperatorWork) -> TierShares:
        """See `PlacementPolicy`."""
        stored = stored_bytes(work)
        # From the last memory backwards, KV and dense weights find what room they need; experts what those leave.
        back = spread(tuple(reversed(tiers)), stored.kv, stored.dense)[..., ::-1]
        taken = jnp.sum(back, axis=-2)
        room = [
            dataclasses.replace(tier, capacity_bytes=as_float(tier.capacity_bytes) - taken[..., i])
            for i, tier in enumerate(tiers)
        ]
        placed = spread(room, stored.experts)
        return TierShares(*(shares_of(one) for one in (back[..., 0, :], back[..., 1, :], placed[..., 0, :])))

    def draft_experts(self, tiers: Sequence[MemoryTier], work: OperatorWork) -> Float[Array, "*b"]:
        """See `PlacementPolicy`."""
        return self.shares(tiers, work).experts[..., 0] * expert_reads(work).num_experts


@flax.struct.dataclass
class AllExternal:
    """Weights and KV lie outside the first memory, which holds activations alone."""

    title: ClassVar[str] = "nothing but activations in the first memory"
    kind: str = tag("all_external")

    def shares(self, tiers: Sequence[MemoryTier], work: OperatorWork) -> TierShares:
        """See `PlacementPolicy`."""
        outside = InOrder().shares(tiers[1:], work)
        return TierShares(*(jnp.concatenate([jnp.zeros_like(s[..., :1]), s], axis=-1) for s in vars(outside).values()))

    def draft_experts(self, tiers: Sequence[MemoryTier], work: OperatorWork) -> Float[Array, "*b"]:
        """None."""
        del tiers
        return jnp.zeros_like(jnp.asarray(expert_reads(work).num_experts))
