"""All placements, those made of others too, and the one that a device has."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.device import Device, MemoryTier
from hwmodels.memory.placement.expert_cache import BitSlices, DraftCopies, ExpertCache
from hwmodels.memory.placement.interface import (
    PlacementPolicy,
    TierShares,
    expert_reads,
    shares_of,
    stored_bytes,
)
from hwmodels.memory.tiers import place_in_order
from hwmodels.network.operators.work import EXPERT_OPERATORS, OPERATORS, OperatorWork
from hwmodels.numerics.fields import tag, variant
from hwmodels.numerics.scalars import as_float, select
from hwmodels.registry import Registry, lacking

__all__ = [
    "PLACEMENTS",
    "SINGLE_PLACEMENTS",
    "AllExternal",
    "ByMode",
    "ExpertsFirst",
    "InOrder",
    "first_memory_share",
    "placement_of",
]

# One memory after the other, each class spread over the layers evenly; and everything outside the first memory.


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
        placed = shares_of(place_in_order(tiers, stored.kv, stored.dense, stored.experts))
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
        back = place_in_order(tuple(reversed(tiers)), stored.kv, stored.dense)[..., ::-1]
        taken = jnp.sum(back, axis=-2)
        room = [
            dataclasses.replace(tier, capacity_bytes=as_float(tier.capacity_bytes) - taken[..., i])
            for i, tier in enumerate(tiers)
        ]
        placed = place_in_order(room, stored.experts)
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


#: Name, and placement.kind of a device's file -> class; each can be made without numbers.
SINGLE_PLACEMENTS: dict[str, type[PlacementPolicy]] = {
    "in_order": InOrder,
    "experts_first": ExpertsFirst,
    "external": AllExternal,
    "expert_cache": ExpertCache,
    "bit_slices": BitSlices,
    "draft_copies": DraftCopies,
}


@flax.struct.dataclass
class ByMode:
    """Whole experts while decoding autoregressively, their leading bits while speculating, unless others are given."""

    title: ClassVar[str] = "one placement for autoregressive decoding, another for speculation"

    autoregressive: PlacementPolicy = variant(SINGLE_PLACEMENTS, default=ExpertCache())
    speculating: PlacementPolicy = variant(SINGLE_PLACEMENTS, default=BitSlices())

    def shares(self, tiers: Sequence[MemoryTier], work: OperatorWork) -> TierShares:
        """See `PlacementPolicy`."""
        drafts = jnp.asarray(expert_reads(work).speculating)[..., None]
        both = self.autoregressive.shares(tiers, work), self.speculating.shares(tiers, work)
        return jax.tree.map(lambda alone, cycle: (1.0 - drafts) * alone + drafts * cycle, *both)

    def draft_experts(self, tiers: Sequence[MemoryTier], work: OperatorWork) -> Float[Array, "*b"]:
        """See `PlacementPolicy`."""
        return self.speculating.draft_experts(tiers, work)


def _accept(name: str, policy: Any) -> type[PlacementPolicy]:
    if not isinstance(policy, type) or lacking(policy, "title shares draft_experts"):
        raise ValueError(
            f"placement {name!r} is {policy!r:.60}; it must be a class with title, shares and draft_experts"
        )
    try:
        policy()
    except TypeError as error:
        raise ValueError(f"placement {name!r} cannot be made without numbers ({error}); give each a default") from error
    return policy


_IS_EXPERT = np.array([name in EXPERT_OPERATORS for name in OPERATORS])

#: Name, and placement.kind of a device's file -> class; each can be made without numbers.
PLACEMENTS: Registry[type[PlacementPolicy]] = Registry("placement", SINGLE_PLACEMENTS | {"by_mode": ByMode}, _accept)

_DEFAULT = InOrder()


def placement_of(device: Device) -> PlacementPolicy:
    """The device's placement, or one class after the other where it has none."""
    return _DEFAULT if device.placement is None else device.placement


def first_memory_share(device: Device, work: OperatorWork) -> Float[Array, "... operator"]:
    """Share of each operator's weights and KV that lies in the device's first memory; 1 with one memory.

    Args:
        device: leaves "*b".
        work: "*b operator".
    Raises:
        ValueError: several memories, and the work does not say what the placement needs.
    """
    if not device.spill:
        return jnp.ones_like(work.flops)
    shares = placement_of(device).shares(device.tiers, work)
    weights = select(_IS_EXPERT, shares.experts[..., :1], shares.dense[..., :1])
    moved = work.weight_bytes + work.kv_bytes
    here = work.weight_bytes * weights + work.kv_bytes * shares.kv[..., :1]
    return jnp.where(moved > 0, here / jnp.where(moved > 0, moved, 1.0), 1.0)
