"""Policies that place a network in the memories of a device, a file each, and the one registry of them."""

from hwmodels.memory.placement.expert_cache import BitSlices, DraftCopies, ExpertCache
from hwmodels.memory.placement.interface import PlacementPolicy, TierShares
from hwmodels.memory.placement.registry import (
    PLACEMENTS,
    SINGLE_PLACEMENTS,
    AllExternal,
    ByMode,
    ExpertsFirst,
    InOrder,
    first_memory_share,
    placement_of,
)

__all__ = [
    "PLACEMENTS",
    "SINGLE_PLACEMENTS",
    "AllExternal",
    "BitSlices",
    "ByMode",
    "DraftCopies",
    "ExpertCache",
    "ExpertsFirst",
    "InOrder",
    "PlacementPolicy",
    "TierShares",
    "first_memory_share",
    "placement_of",
]
