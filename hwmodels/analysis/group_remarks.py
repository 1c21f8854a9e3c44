"""What a reader of several devices' numbers should know: idle ones, links that do not join them, stages without engines."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hwmodels.device import Device
from hwmodels.numerics.scalars import Number
from hwmodels.parallel.group import DeviceGroup

__all__ = ["group_remarks"]


def group_remarks(device: Device, batches: Iterable[Number], *, when: str = "at any moment") -> list[str]:
    """Sentences where a group has more replicas and stages than there are sequences, more devices than its link joins, or
    stages, with which engines do not speculate.

    Args:
        device: alone or one of a group; of several numbers of replicas or stages the largest count.
        batches: numbers of sequences that are priced, each "*b".
        when: in words; of numbers of sequences that are means, "on average".
    """
    if device.group is None:
        return []
    return [*_idle(device.group, batches, when), *_apart(device.group), *_stages(device.group)]


def _most(count: Number) -> float:
    return float(np.max(np.asarray(count)))


def _apart(group: DeviceGroup) -> list[str]:
    joins, together = group.link.joins, max(_most(group.tensor_parallel), _most(group.expert_parallel))
    stages = together * _most(group.pipeline)
    if joins is None or stages <= joins:
        return []
    what = f"{together:g} devices exchange in every layer"
    if together <= joins:
        what = f"stages are spread over {stages:g} devices"
    return [
        f"{what}, and the link joins {joins}: the others are in further hosts, and their exchange is priced as if they were "
        "not; a link between hosts (infiniband-ndr, say) prices all of it over that"
    ]


def _stages(group: DeviceGroup) -> list[str]:
    """Source: documentation of vLLM up to 0.14, its releases 0.28 and 0.29 (issue 57755); SGLang, pull request 30775."""
    if _most(group.pipeline) <= 1:
        return []
    return [
        "pipeline stages with speculation are priced as if an engine took both: vLLM's documentation excludes them up to 0.14 "
        "and its releases 0.28 and 0.29 stop as they start, SGLang refuses them unless SGLANG_ENABLE_PP_SPEC=1 is set (EAGLE "
        "alone)"
    ]


def _idle(group: DeviceGroup, batches: Iterable[Number], when: str) -> list[str]:
    ways = {"replicas": group.data_parallel, "stages": group.pipeline}
    ways = {name: _most(count) for name, count in ways.items()}
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
