"""Steps of a network on a device: what each executes and what it costs, all of them through one map."""

from __future__ import annotations

import math
from collections.abc import Sequence

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from hwmodels.device import Device
from hwmodels.network.architecture import Architecture
from hwmodels.network.operators import OperatorWork, StepShape
from hwmodels.network.routing import UNIFORM, Routing
from hwmodels.numerics.quick_jit import priced_at_once
from hwmodels.numerics.scalars import Number, as_float
from hwmodels.numerics.traced_once import traced_once
from hwmodels.step.group_step import group_step
from hwmodels.step.step_cost import StepCost, step_cost

__all__ = ["PricedStep", "price_steps"]


@flax.struct.dataclass
class PricedStep:
    """One step, or "*g" of them: what it executes and what that costs."""

    work: OperatorWork
    cost: StepCost


@priced_at_once
def price_steps(
    device: Device,
    architecture: Architecture,
    groups: Sequence[StepShape],
    *,
    routing: Routing = UNIFORM,
    temperature: Number = 0.0,
) -> list[PricedStep]:
    """Price groups of steps of one network, all in one map: a program holds the model of a step once.

    On a device that is one of several (`Device.group`) a step is that of all of them together: see `group_step`.

    Args:
        device, architecture: leaves are single numbers; `vmap` for more.
        groups: of each the leaves broadcast to "*g", () for a single step.
        routing: of all steps' tokens, popularity "expert"; uniform and independent unless given.
        temperature: one number in [0, 1], of the smooth maximum; 0 is exact.
    Returns:
        for each group its steps, leaves "*g ...".
    """
    leaves = [[jnp.asarray(as_float(leaf)) for leaf in jax.tree.leaves(group)] for group in groups]
    shapes = [np.broadcast_shapes(*(leaf.shape for leaf in group)) for group in leaves]
    columns = [
        jnp.concatenate([jnp.broadcast_to(leaf, shape).reshape(-1) for leaf, shape in zip(rows, shapes, strict=True)])
        for rows in zip(*leaves, strict=True)
    ]
    steps = jax.tree.structure(groups[0]).unflatten(columns)
    found = _price_rows(device, architecture, steps, routing=routing, temperature=temperature)
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    return [
        jax.tree.map(lambda leaf, rows=slice(start, end), s=shape: leaf[rows].reshape(*s, *leaf.shape[1:]), found)
        for start, end, shape in zip([0, *ends[:-1]], ends, shapes, strict=True)
    ]


@traced_once
def _price_rows(
    device: Device, architecture: Architecture, steps: StepShape, *, routing: Routing, temperature: Number
) -> PricedStep:
    """Steps, leaves "row", and their costs, leaves "row ..."."""

    def price(step: StepShape) -> PricedStep:
        if device.group is not None:
            return PricedStep(*group_step(device, architecture, step, routing=routing, temperature=temperature))
        work = step.operators(architecture, routing)
        return PricedStep(work, step_cost(device, work, temperature=temperature))

    return jax.vmap(price)(steps)
