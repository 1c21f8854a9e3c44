"""All placements, those made of others too, and the one that a device has."""

from __future__ import annotations

from hwmodels.device import Device
from hwmodels.memory.placement.by_mode import ByMode
from hwmodels.memory.placement.in_order import InOrder
from hwmodels.memory.placement.interface import PlacementPolicy
from hwmodels.memory.placement.registry import SINGLE_PLACEMENTS

__all__ = ["PLACEMENTS", "placement_of"]

#: Name, and placement.kind of a device's file -> class; each can be made without numbers.
PLACEMENTS: dict[str, type[PlacementPolicy]] = SINGLE_PLACEMENTS | {"by_mode": ByMode}

_DEFAULT = InOrder()


def placement_of(device: Device) -> PlacementPolicy:
    """The device's placement, or one class after the other where it has none."""
    return _DEFAULT if device.placement is None else device.placement
