"""Errors of a step's parts on a calibrated device, from what its kernels' fits missed on shapes that were held out.

Each operator's time errs as the table that its kernel was fitted to. Operators of one step err apart from each other, so that
their half widths add up in quadrature; all launches of one operator err together. Collectives of several devices likewise.
What has no table (norms, embedding, sends) adds its time alone. Where whole steps were held out of a fit, their interval is the
step's.
"""

from __future__ import annotations

import dataclasses
from statistics import NormalDist

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.compute.roofline import unit_of
from hwmodels.compute.unit import ErrorInterval
from hwmodels.device import Device
from hwmodels.network.operators.work import EXPERT_OPERATORS, MATRIX_OPERATORS, OPERATORS
from hwmodels.numerics.fast_compile import run_on_host
from hwmodels.numerics.scalars import select, with_rank
from hwmodels.parallel.collectives import COLLECTIVES
from hwmodels.step.priced_steps import PricedStep

__all__ = [
    "StepInterval",
    "known_scatter",
    "loop_scatter",
    "part_deviations",
    "part_times",
    "step_interval",
    "times_have_errors",
    "without_spreads",
]

#: New tokens per sequence from which attention is prefill.
_PREFILL_TOKENS = 64.0

_IS_EXPERT = np.array([name in EXPERT_OPERATORS for name in OPERATORS])[:, None]
_IS_MATRIX = np.array([name in MATRIX_OPERATORS for name in OPERATORS])[:, None]
_IS_ATTENTION = np.array([name == "attention" for name in OPERATORS])[:, None]


@dataclasses.dataclass(frozen=True)
class StepInterval:
    """Ends of an interval that covers a measured time with probability `coverage`."""

    low_s: float
    high_s: float
    coverage: float


def times_have_errors(device: Device) -> bool:
    """Whether somebody measured how far times of steps, or of their parts, lie from those of the device's model; static."""
    return bool(_of_steps(device))


def without_spreads(device: Device, *parts: str) -> Device:
    """The same device, of which nobody knows how far the times of some parts lie off.

    Spreads are static. A program that does not read them is compiled once for all devices that differ in nothing else, if it is
    given these.

    Args:
        parts: of `SPREAD_PARTS`; none: all.
    """
    kernels = unit_of(device).measured
    spreads = () if kernels is None else kernels.spreads
    left = tuple(one for one in spreads if parts and one.part not in parts)
    if left == spreads:
        return device
    return dataclasses.replace(device, matrix_unit=dataclasses.replace(device.matrix_unit, spreads=left))


def _of_steps(device: Device) -> tuple[ErrorInterval, ...]:
    """All but those of whole cycles, which say nothing of a step alone."""
    kernels = unit_of(device).measured
    return () if kernels is None else tuple(one for one in kernels.spreads if one.part != "cycles")


def loop_scatter(device: Device) -> float:
    """Standard deviation of the logarithm of this package's cycles about their prediction, beyond what their steps err by.

    Args:
        device: a measured machine. Cycles that its calibration held out err by their steps and by what the loop adds: what is
            left of their variance without that of whole steps is the loop's.
    Returns:
        0 where no cycles were held out, or where they err no more than steps.
    """
    cycles, steps = (_held_out(device, part) for part in ("cycles", "steps"))
    of = lambda one: 0.0 if one is None else float(_deviates(one.coverage, jnp.asarray(one.ends, jnp.float32)))
    return max(of(cycles) ** 2 - of(steps) ** 2, 0.0) ** 0.5


def known_scatter(device: Device, scatter: float) -> np.ndarray | None:
    """An engine's scatter as programs with intervals take it; on the host.

    Args:
        scatter: standard deviation of the logarithm of a cycle of this engine about its prediction.
    Returns:
        None where nothing is known to err: nobody measured the device's steps or their parts, and cycles do not scatter.
    """
    return np.asarray(scatter, np.float32) if times_have_errors(device) or scatter > 0 else None


def step_interval(device: Device, step: PricedStep) -> StepInterval | None:
    """The interval of one step's time; on the host.

    Args:
        device: its matrix unit has the spreads of its kernels.
        step: single numbers.
    Returns:
        None for a device that is not calibrated: nobody measured it.
    """
    if not _of_steps(device) or step.work.shapes is None:
        return None
    total = float(np.asarray(step.cost.total_s))
    if (whole := _held_out(device, "steps")) is not None:
        low, high = whole.ends
        return StepInterval(total * low, total * high, whole.coverage)
    seconds, ends = (np.asarray(each, np.float64) for each in _parts(device, step))
    below, above = (np.sqrt(np.sum((seconds * (ends[:, side] - 1.0)) ** 2)) for side in (0, 1))
    return StepInterval(total - float(below), total + float(above), _coverage(device))


@run_on_host
def _parts(device: Device, step: PricedStep) -> tuple[Array, Array | None]:
    """Times of a step's parts, and the ends of their intervals as factors."""
    return part_times(step), _part_ends(device, step)


def part_times(step: PricedStep) -> Float[Array, "*b part"]:
    """Seconds of a step's operators, of collectives between devices, and of what is neither; their sum is the step's.

    Args:
        step: leaves "*b ...".
    """
    operators, total = jnp.asarray(step.cost.operator_s), jnp.asarray(step.cost.total_s)
    shape = (*total.shape, len(COLLECTIVES))
    collectives = (
        jnp.zeros(shape, operators.dtype) if step.cost.collective_s is None else jnp.asarray(step.cost.collective_s)
    )
    known = jnp.concatenate([operators, collectives], axis=-1)
    return jnp.concatenate([known, (total - jnp.sum(known, axis=-1))[..., None]], axis=-1)


def part_deviations(device: Device, step: PricedStep) -> Float[Array, "*b part"] | None:
    """Standard deviation of the logarithm of each part's time about its fit.

    Args:
        device, step: leaves of the step "*b ...".
    Returns:
        None as of `step_interval`. 0 for parts without a table; where whole steps were held out, as much for each as makes the
        step err as they do.
    Departs: the two sides of a table's interval, which differ by a few percent of it, count alike. Where all measured times lie
        on one side, that side counts for both.
    """
    ends = _part_ends(device, step)
    if ends is None:
        return None
    if (whole := _held_out(device, "steps")) is not None:
        seconds = part_times(step)
        together = jnp.sqrt(jnp.sum(seconds**2, axis=-1, keepdims=True))
        deviation = _deviates(whole.coverage, jnp.asarray(whole.ends, seconds.dtype))
        return jnp.broadcast_to(deviation * jnp.sum(seconds, -1, keepdims=True) / together, seconds.shape)
    return _deviates(_coverage(device), ends)


def _held_out(device: Device, part: str) -> ErrorInterval | None:
    """Of whole steps or cycles."""
    kernels = unit_of(device).measured
    return None if kernels is None else next((one for one in kernels.spreads if one.part == part), None)


def _coverage(device: Device) -> float:
    return _of_steps(device)[0].coverage


def _deviates(coverage: float, ends: Float[Array, "... 2"]) -> Float[Array, ...]:
    """Standard deviation of the logarithm of what lies between these factors with this probability, about a factor of 1."""
    low, high = ends[..., 0], ends[..., 1]
    one_sided = (low >= 1.0) | (high <= 1.0)
    reach = (jnp.log(high) - jnp.log(low)) * jnp.where(one_sided, 1.0, 0.5)
    return reach / NormalDist().inv_cdf(0.5 + coverage / 2.0)


def _part_ends(device: Device, step: PricedStep) -> Float[Array, "*b part 2"] | None:
    """Low and high end of each part's interval as factors of its time; 1 without a table. None: not calibrated."""
    spreads, work = _of_steps(device), step.work
    if not spreads or work.shapes is None:
        return None
    bits = jnp.broadcast_to(jnp.asarray(work.shapes.weight_bits), jnp.asarray(step.cost.operator_s).shape)
    # One width of the cache and one number of new tokens for all operators.
    cache, tokens = (
        jnp.broadcast_to(jnp.asarray(leaf)[..., None], bits.shape) for leaf in (work.kv_bits, work.new_tokens)
    )
    near = lambda part, widths: _nearest(spreads, part, widths)
    attention = jnp.where((tokens >= _PREFILL_TOKENS)[..., None], near("prefill", cache), near("attention", cache))
    products = select(_IS_EXPERT, near("experts", bits), near("products", bits))
    operators = select(_IS_ATTENTION, attention, select(_IS_MATRIX, products, 1.0))
    links = () if device.group is None else device.group.link.spreads
    of_links = {one.part: one.ends for one in links}
    others = np.array([*(of_links.get(name, (1.0, 1.0)) for name in COLLECTIVES), (1.0, 1.0)], np.float32)
    return jnp.concatenate([operators, jnp.broadcast_to(others, (*bits.shape[:-1], *others.shape))], axis=-2)


def _nearest(
    spreads: tuple[ErrorInterval, ...], part: str, bits: Float[Array, "*b operator"]
) -> Float[Array, "*b operator 2"]:
    """Ends of the kernel whose width is nearest; experts that nobody measured run as products."""
    candidates = [one for one in spreads if one.part == part] or [one for one in spreads if one.part == "products"]
    if not candidates:
        return jnp.ones((*bits.shape, 2))
    widths, ends = (np.array(rows, np.float32) for rows in ([x.bits for x in candidates], [x.ends for x in candidates]))
    return jnp.asarray(ends)[jnp.argmin(jnp.abs(bits[..., None] - with_rank(widths, bits.ndim + 1)), axis=-1)]
