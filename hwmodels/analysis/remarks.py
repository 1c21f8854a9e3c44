"""What a reader should know of a priced case: encoding at no cost, groups of devices, launches, linear attention."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from hwmodels.compute.roofline import unit_of
from hwmodels.device import Device
from hwmodels.network.architecture import UNCOMPRESSED_BITS, Architecture, Footprint
from hwmodels.numerics.scalars import Number
from hwmodels.numerics.units import MICRO
from hwmodels.parallel.group import DeviceGroup
from hwmodels.step.priced_steps import PricedStep

__all__ = ["encoder_remarks", "group_remarks", "launch_remarks", "linear_remarks"]


def encoder_remarks(device: Device, footprint: Footprint) -> list[str]:
    """A sentence where keys and values are stored in fewer than 16 bits and the device has no encoder.

    Args:
        device: leaves are single numbers.
        footprint: leaves "*b", known.
    """
    if device.encoder is not None:
        return []
    bits = min(float(np.min(width)) for width in (footprint.draft_kv_bits, footprint.target_kv_bits))
    if bits >= UNCOMPRESSED_BITS:
        return []
    return [
        f"encoding: keys and values are read in {bits:.3g} bits, and this device's file has no [encoder]: compressing new ones "
        "takes neither time nor energy here"
    ]


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


#: Of one launch on the GPUs that are measured: mem_empirical_constant_latency of aiconfigurator-core 0.12.0.
_LAUNCH_S = 3e-6
#: Share of a step from which launches decide what it takes.
_MUCH = 0.5


def launch_remarks(device: Device, step: PricedStep) -> list[str]:
    """A sentence where launches are most of a step, or would be if the device's file did not leave them out.

    Args:
        device: leaves are single numbers.
        step: of decoding one token per sequence; leaves of a single step, known.
    """
    launches, step_s = float(np.sum(step.work.launches)), float(step.cost.total_s)
    if float(device.operator_latency_s) > 0.0:
        share = float(np.sum(step.cost.launch_s)) / step_s
        if share < _MUCH:
            return []
        return [
            f"launches: {100 * share:.0f} % of a decoding step is launching its {launches:.0f} kernels; a faster memory or "
            "array changes little, fewer kernels or a graph of them do"
        ]
    if unit_of(device).measured is not None or device.matrix_unit is not None or launches * _LAUNCH_S < _MUCH * step_s:
        return []
    return [
        f"launches: this device's file gives 0 s for one. At the {_LAUNCH_S / MICRO:g} us of measured GPUs the {launches:.0f} "
        f"launches of a decoding step take {launches * _LAUNCH_S / MICRO:.0f} us, where {step_s / MICRO:.3g} us are predicted: "
        "give operator_latency_s, or take a calibrated device"
    ]


def linear_remarks(device: Device, networks: Sequence[Architecture]) -> list[str]:
    """Sentences on layers with linear attention; empty for networks without them.

    Args:
        networks: target and draft, as far as they are given; leaves "*b" or single numbers.
    """
    layers = max((np.max(np.asarray(one.num_linear_layers)) for one in networks), default=0)
    if layers == 0:
        return []
    remarks = [
        "linear attention: a verification writes a state for each new token; engines that compute states again write less"
    ]
    if unit_of(device).measured is not None:
        remarks.append(
            f"not measured: linear attention of {layers:g} layers; its states move at the device's bandwidth, a launch each"
        )
    return remarks
