"""Intervals of a step's time on a calibrated device, from what its kernels' fits missed on shapes that were held out.

Each operator's time has the interval of the table that its kernel was fitted to. Operators of one step err apart from each
other, so that their half widths add up in quadrature; all launches of one operator err together. Collectives of several
devices likewise. What has no table (norms, embedding, sends) adds its time alone. Where whole steps were held out of a fit,
their interval is the step's.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from hwmodels.compute.roofline import unit_of
from hwmodels.compute.unit import Spread
from hwmodels.device import Device
from hwmodels.network.operators.work import EXPERT_OPERATORS, MATRIX_OPERATORS, OPERATORS
from hwmodels.parallel.collectives import COLLECTIVES
from hwmodels.step.priced_steps import PricedStep

__all__ = ["StepInterval", "step_interval"]

#: New tokens per sequence from which attention is prefill.
_PREFILL_TOKENS = 64.0


@dataclasses.dataclass(frozen=True)
class StepInterval:
    """Ends of an interval that covers a measured time with probability `coverage`."""

    low_s: float
    high_s: float
    coverage: float


def step_interval(device: Device, step: PricedStep) -> StepInterval | None:
    """The interval of one step's time; on the host.

    Args:
        device: its matrix unit has the spreads of its kernels.
        step: single numbers.
    Returns:
        None for a device that is not calibrated: nobody measured it.
    """
    kernels = unit_of(device).measured
    if kernels is None or not kernels.spreads or step.work.shapes is None:
        return None
    seconds, bits = np.asarray(step.cost.operator_s, np.float64), np.asarray(step.work.shapes.weight_bits, np.float64)
    total = float(np.asarray(step.cost.total_s))
    if (whole := next((one for one in kernels.spreads if one.part == "steps"), None)) is not None:
        return StepInterval(total * whole.low, total * whole.high, whole.coverage)
    kv_bits, tokens = float(np.asarray(step.work.kv_bits)), float(np.asarray(step.work.new_tokens))
    below, above = 0.0, 0.0
    for index, name in enumerate(OPERATORS):
        if name == "attention":
            found = _nearest(kernels.spreads, "prefill" if tokens >= _PREFILL_TOKENS else "attention", kv_bits)
        elif name in MATRIX_OPERATORS:
            found = _nearest(kernels.spreads, "experts" if name in EXPERT_OPERATORS else "products", float(bits[index]))
        else:
            found = None
        if found is not None:
            below += (seconds[index] * (1.0 - found.low)) ** 2
            above += (seconds[index] * (found.high - 1.0)) ** 2
    if device.group is not None and step.cost.collective_s is not None:
        spreads = {one.part: one for one in device.group.link.spreads}
        for name, one in zip(COLLECTIVES, np.asarray(step.cost.collective_s, np.float64).tolist()):
            if name in spreads:
                below += (one * (1.0 - spreads[name].low)) ** 2
                above += (one * (spreads[name].high - 1.0)) ** 2
    return StepInterval(total - math.sqrt(below), total + math.sqrt(above), kernels.spreads[0].coverage)


def _nearest(spreads: tuple[Spread, ...], part: str, bits: float) -> Spread | None:
    """Of the kernel whose width is nearest; experts that nobody measured run as products."""
    found = [one for one in spreads if one.part == part] or [one for one in spreads if one.part == "products"]
    return min(found, key=lambda one: abs(one.bits - bits), default=None)
