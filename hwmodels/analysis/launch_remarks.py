"""What a reader of very short steps should know: launching kernels may take longer than what they do."""

from __future__ import annotations

import numpy as np

from hwmodels.compute.roofline import unit_of
from hwmodels.device import Device
from hwmodels.numerics.units import MICRO
from hwmodels.step.priced_steps import PricedStep

__all__ = ["launch_remarks"]

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
