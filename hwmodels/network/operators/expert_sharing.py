"""Experts of a layer spread over devices: what the busiest device reads and multiplies.

All devices wait for the busiest one. With t different experts chosen of E, spread over D devices, one of them has t / D on
average with the variance of drawing without replacement, and the busiest about

    t / D + sqrt(2 ln(D) · t / D · (1 - 1 / D) (1 - t / E)),    at most t and E / D.

Source: expected maximum of D normal variables, bounded from above by sqrt(2 ln D) standard deviations; experts are placed
without knowledge of their popularity. No engine's balancing is modelled.
"""

from __future__ import annotations

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.numerics.scalars import Leaf, Number, as_float

__all__ = ["ExpertSharing", "busiest_experts"]


@flax.struct.dataclass
class ExpertSharing:
    """How a layer's experts are spread. Every field is a leaf, "*b"."""

    devices: Leaf  # that hold a part of the experts each, >= 1
    replicas: Leaf  # batches, each of a step of its own, whose tokens come to the same experts, >= 1


def busiest_experts(touched: Number, num_experts: Number, devices: Number) -> Float[Array, "*b"]:
    """Different experts that the busiest device reads.

    Args:
        touched: "*b", in [0, num_experts]; of all devices together.
        num_experts: "*b", >= 0.
        devices: "*b", >= 1.
    Returns:
        "*b"; `touched` for one device.
    Gradient: kinks where one of the bounds holds.
    """
    chosen, experts, count = (jnp.asarray(as_float(value)) for value in (touched, num_experts, devices))
    mean, held = chosen / count, experts / count
    unread = 1.0 - chosen / jnp.where(experts > 0, experts, 1.0)
    variance = mean * (1.0 - 1.0 / count) * jnp.maximum(unread, 0.0)
    spread = 2.0 * jnp.log(count) * variance
    several = spread > 0
    # At 0 the slope of the root is infinite, and nothing is added.
    beyond = jnp.where(several, jnp.sqrt(jnp.where(several, spread, 1.0)), 0.0)
    return jnp.minimum(mean + beyond, jnp.minimum(chosen, held))
