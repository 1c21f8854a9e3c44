"""Placements by name: the one place where a policy is registered."""

from __future__ import annotations

from hwmodels.memory.placement.expert_cache import BitSlices, DraftCopies, ExpertCache
from hwmodels.memory.placement.in_order import AllExternal, ExpertsFirst, InOrder
from hwmodels.memory.placement.interface import PlacementPolicy

__all__ = ["SINGLE_PLACEMENTS"]

#: Name, and placement.kind of a device's file -> class; each can be made without numbers.
SINGLE_PLACEMENTS: dict[str, type[PlacementPolicy]] = {
    "in_order": InOrder,
    "experts_first": ExpertsFirst,
    "external": AllExternal,
    "expert_cache": ExpertCache,
    "bit_slices": BitSlices,
    "draft_copies": DraftCopies,
}
