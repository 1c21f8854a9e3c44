"""All placements, those made of others too, and the one that a device has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.device import Device, MemoryTier
from hwmodels.memory.placement.expert_cache import BitSlices, ExpertCache
from hwmodels.memory.placement.in_order import InOrder
from hwmodels.memory.placement.interface import PlacementPolicy, TierShares, expert_reads
from hwmodels.memory.placement.registry import SINGLE_PLACEMENTS
from hwmodels.network.operators.work import EXPERT_OPERATORS, OPERATORS, OperatorWork
from hwmodels.numerics.axes import select
from hwmodels.numerics.fields import variant
from hwmodels.registry import Registry, lacking

__all__ = ["PLACEMENTS", "ByMode", "first_memory_share", "placement_of"]


@flax.struct.dataclass
class ByMode:
    """Whole experts while decoding autoregressively, their leading bits while speculating, unless others are given."""

    title: ClassVar[str] = "one placement for autoregressive decoding, another for speculation"

    autoregressive: PlacementPolicy = variant(SINGLE_PLACEMENTS, default=ExpertCache())
    speculating: PlacementPolicy = variant(SINGLE_PLACEMENTS, default=BitSlices())

    def shares(self, tiers: Sequence[MemoryTier], work: OperatorWork) -> TierShares:
        """See `PlacementPolicy`."""
        drafts = jnp.asarray(expert_reads(work).speculating)[..., None]
        found = self.autoregressive.shares(tiers, work), self.speculating.shares(tiers, work)
        return jax.tree.map(lambda alone, cycle: (1.0 - drafts) * alone + drafts * cycle, *found)

    def draft_experts(self, tiers: Sequence[MemoryTier], work: OperatorWork) -> Float[Array, "*b"]:
        """See `PlacementPolicy`."""
        return self.speculating.draft_experts(tiers, work)


def _accept(name: str, found: Any) -> type[PlacementPolicy]:
    if not isinstance(found, type) or lacking(found, "title shares draft_experts"):
        raise ValueError(
            f"placement {name!r} is {found!r:.60}; it must be a class with title, shares and draft_experts"
        )
    try:
        found()
    except TypeError as error:
        raise ValueError(f"placement {name!r} cannot be made without numbers ({error}); give each a default") from error
    return found


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
    found = placement_of(device).shares(device.tiers, work)
    weights = select(_IS_EXPERT, found.experts[..., :1], found.dense[..., :1])
    moved = work.weight_bytes + work.kv_bytes
    here = work.weight_bytes * weights + work.kv_bytes * found.kv[..., :1]
    return jnp.where(moved > 0, here / jnp.where(moved > 0, moved, 1.0), 1.0)
