"""Policies that place a network in the memories of a device, a file each, and the one registry of them."""

from hwmodels.memory.placement.by_mode import ByMode
from hwmodels.memory.placement.by_name import PLACEMENTS, placement_of
from hwmodels.memory.placement.expert_cache import BitSlices, DraftCopies, ExpertCache
from hwmodels.memory.placement.in_order import AllExternal, InOrder
from hwmodels.memory.placement.interface import PlacementPolicy, TierShares
from hwmodels.memory.placement.registry import SINGLE_PLACEMENTS

__all__ = [
    "PLACEMENTS",
    "SINGLE_PLACEMENTS",
    "AllExternal",
    "BitSlices",
    "ByMode",
    "DraftCopies",
    "ExpertCache",
    "InOrder",
    "PlacementPolicy",
    "TierShares",
    "placement_of",
]
