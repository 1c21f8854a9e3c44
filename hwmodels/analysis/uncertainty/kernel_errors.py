"""Errors of a step's parts on a calibrated device, from what its kernels' fits missed on shapes that were held out.

Each operator's time errs as the table that its kernel was fitted to. Operators of one step err apart from each other, so that
their half widths add up in quadrature; all launches of one operator err together. Collectives of several devices likewise.
What has no table (norms, embedding, sends) adds its time alone. Where whole steps were held out of a fit, their interval is the
step's.
"""

from __future__ import annotations

import dataclasses
import math
from statistics import NormalDist

import numpy as np
from jaxtyping import Float

from hwmodels.compute.roofline import unit_of
from hwmodels.compute.unit import Spread
from hwmodels.device import Device
from hwmodels.network.operators.work import EXPERT_OPERATORS, MATRIX_OPERATORS, OPERATORS
from hwmodels.parallel.collectives import COLLECTIVES
from hwmodels.step.priced_steps import PricedStep

__all__ = ["StepInterval", "part_deviations", "part_times", "step_interval"]

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
    found = _spreads(device, step)
    if found is None:
        return None
    total = float(np.asarray(step.cost.total_s))
    if (whole := _whole(device)) is not None:
        return StepInterval(total * whole.low, total * whole.high, whole.coverage)
    held = [(time, spread) for time, spread in zip(part_times(step), found, strict=True) if spread is not None]
    below = sum((time * (1.0 - spread.low)) ** 2 for time, spread in held)
    above = sum((time * (spread.high - 1.0)) ** 2 for time, spread in held)
    return StepInterval(total - math.sqrt(below), total + math.sqrt(above), held[0][1].coverage)


def part_times(step: PricedStep) -> Float[np.ndarray, " part"]:
    """Seconds of a step's operators, of collectives between devices, and of what is neither; their sum is the step's."""
    cost = step.cost
    collectives = np.zeros(len(COLLECTIVES)) if cost.collective_s is None else cost.collective_s
    known = np.concatenate([np.asarray(cost.operator_s, np.float64), np.asarray(collectives, np.float64)])
    return np.append(known, float(np.asarray(cost.total_s)) - known.sum())


def part_deviations(device: Device, step: PricedStep) -> Float[np.ndarray, " part"] | None:
    """Standard deviation of the logarithm of each part's time about its fit; on the host.

    Arguments and None: as `step_interval`. 0 for parts without a table; where whole steps were held out, as much for each as
    makes the step err as they do.
    Departs: the two sides of a table's interval, which differ by a few percent of it, count alike.
    """
    found = _spreads(device, step)
    if found is None:
        return None
    if (whole := _whole(device)) is not None:
        seconds = part_times(step)
        return np.full(seconds.size, _deviation(whole) * seconds.sum() / math.sqrt(float(np.sum(seconds**2))))
    return np.array([0.0 if spread is None else _deviation(spread) for spread in found])


def _whole(device: Device) -> Spread | None:
    """Of whole steps."""
    kernels = unit_of(device).measured
    return None if kernels is None else next((one for one in kernels.spreads if one.part == "steps"), None)


def _deviation(spread: Spread) -> float:
    return math.log(spread.high / spread.low) / 2.0 / NormalDist().inv_cdf(0.5 + spread.coverage / 2.0)


def _spreads(device: Device, step: PricedStep) -> list[Spread | None] | None:
    """Of each part, as `part_times` has them; None for a device that is not calibrated."""
    kernels = unit_of(device).measured
    if kernels is None or not kernels.spreads or step.work.shapes is None:
        return None
    bits = np.asarray(step.work.shapes.weight_bits, np.float64)
    kv_bits, tokens = float(np.asarray(step.work.kv_bits)), float(np.asarray(step.work.new_tokens))
    found: list[Spread | None] = []
    for index, name in enumerate(OPERATORS):
        if name == "attention":
            part = "prefill" if tokens >= _PREFILL_TOKENS else "attention"
            found.append(_nearest(kernels.spreads, part, kv_bits))
        elif name in MATRIX_OPERATORS:
            part = "experts" if name in EXPERT_OPERATORS else "products"
            found.append(_nearest(kernels.spreads, part, float(bits[index])))
        else:
            found.append(None)
    links = () if device.group is None else device.group.link.spreads
    of_links = {one.part: one for one in links}
    return [*found, *(of_links.get(name) for name in COLLECTIVES), None]


def _nearest(spreads: tuple[Spread, ...], part: str, bits: float) -> Spread | None:
    """Of the kernel whose width is nearest; experts that nobody measured run as products."""
    found = [one for one in spreads if one.part == part] or [one for one in spreads if one.part == "products"]
    return min(found, key=lambda one: abs(one.bits - bits), default=None)
