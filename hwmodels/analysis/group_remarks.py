"""What a reader of several devices' numbers should know: some of them may have nothing to do."""

from __future__ import annotations

from hwmodels.device import Device

__all__ = ["group_remarks"]


def group_remarks(device: Device, batch: float) -> list[str]:
    """A sentence where a group has more replicas and stages than there are sequences.

    Args:
        device: alone or one of a group; leaves are single numbers.
        batch: sequences decoded together.
    """
    if device.group is None:
        return []
    ways = {"replicas": float(device.group.data_parallel), "stages": float(device.group.pipeline)}
    parts = ways["replicas"] * ways["stages"]
    if batch >= parts:
        return []
    named = " x ".join(f"{count:g} {name}" for name, count in ways.items() if count > 1)
    return [
        f"{batch:g} {'sequence' if batch == 1 else 'sequences'} for {named}: {parts - batch:g} of {parts:g} have nothing to do "
        "at any moment, and what they draw is counted; decode more at once, or divide the network in fewer parts"
    ]
