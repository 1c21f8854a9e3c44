"""What a reader of several devices' numbers should know: some of them may have nothing to do."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hwmodels.device import Device
from hwmodels.numerics.scalars import Number

__all__ = ["group_remarks"]


def group_remarks(device: Device, batches: Iterable[Number], *, when: str = "at any moment") -> list[str]:
    """A sentence where a group has more replicas and stages than there are sequences.

    Args:
        device: alone or one of a group; of several numbers of replicas or stages the largest count.
        batches: numbers of sequences that are priced, each "*b".
        when: in words; of numbers of sequences that are means, "on average".
    """
    if device.group is None:
        return []
    ways = {"replicas": device.group.data_parallel, "stages": device.group.pipeline}
    ways = {name: float(np.max(np.asarray(count))) for name, count in ways.items()}
    parts = ways["replicas"] * ways["stages"]
    few = [float(one) for batch in batches for one in np.ravel(np.asarray(batch)) if one < parts]
    if not few:
        return []
    low, high = min(few), max(few)
    named = " x ".join(f"{count:g} {name}" for name, count in ways.items() if count > 1)
    return [
        f"{_range(low, high)} {'sequence' if high == 1 else 'sequences'} for {named}: {_range(parts - high, parts - low)} of "
        f"{parts:g} have nothing to do {when}, and what they draw is counted; decode more at once, or divide the network in "
        "fewer parts"
    ]


def _range(low: float, high: float) -> str:
    words = [f"{end:.3g}" for end in (low, high)]
    return words[0] if words[0] == words[1] else " to ".join(words)
