"""Traffic of a step: which bytes each operator moves to and from each memory, and how long that takes.

With one memory all bytes stream from it. With several, the device's placement says which share of KV, dense weights and experts
an operator moves to and from each; activations stay in the first.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.device import Device, MemoryTier
from hwmodels.memory.placement import placement_of
from hwmodels.memory.tiers import half_efficiency_bytes
from hwmodels.network.operators import EXPERT_OPERATORS, OPERATORS, OperatorWork
from hwmodels.network.operators.work import over_batches
from hwmodels.numerics.axes import select, with_rank
from hwmodels.numerics.gradients import share_cotangent
from hwmodels.numerics.scalars import Number, with_last_axis
from hwmodels.numerics.smoothing import smooth_maximum

__all__ = ["memory_time", "traffic_by_memory"]

_IS_EXPERT = np.array([name in EXPERT_OPERATORS for name in OPERATORS])


def traffic_by_memory(device: Device, work: OperatorWork) -> tuple[Float[Array, "... operator"], ...]:
    """Bytes that each operator moves to and from each memory, the first memory first.

    Args:
        device: leaves "*b".
        work: "*b operator".
    Raises:
        ValueError: several memories, and the work does not say what is stored, or read, as the placement needs it.
    Gradient: kinks where a memory is just full.
    """
    device, work = over_batches(device, work)
    kv_bytes = work.kv_bytes * with_last_axis(device.kv_traffic_factor)
    if not device.spill:
        return (share_cotangent(work.weight_bytes + kv_bytes + work.activation_bytes),)
    shares = placement_of(device).shares(device.tiers, work)
    kv, dense, experts = (share[..., None, :] for share in vars(shares).values())
    weights = select(_IS_EXPERT[:, None], experts, dense)
    first = with_rank((jnp.arange(1 + len(device.spill)) == 0).astype(kv.dtype), work.flops.ndim + 1)
    moved = kv_bytes[..., None] * kv + work.weight_bytes[..., None] * weights + work.activation_bytes[..., None] * first
    return tuple(jnp.unstack(share_cotangent(moved), axis=-1))


def memory_time(
    device: Device,
    traffic_bytes: Sequence[Float[Array, "... operator"]],
    *,
    work: OperatorWork,
    share: Sequence[Float[Array, "... operator"]],
    temperature: Number = 0.0,
) -> Float[Array, "... operator"]:
    """Seconds to move each operator's bytes, each of them once.

    Args:
        device: leaves "*b".
        traffic_bytes: of each memory, see `traffic_by_memory`.
        work: "*b operator"; each product of each launch is one access to a memory that lets accesses wait.
        share: of each memory's bandwidth that each operator's streams reach, in (0, 1].
        temperature: one number in [0, 1], of the maximum over memories that work at the same time.
    Returns:
        never less than if what lies in a memory and behind it all came from the fastest of these: all streams enter the unit
        by ports as wide as that memory, so that a memory that is too small saves no time.
    Gradient: a kink where the ports decide.
    """
    rates = [
        with_last_axis(tier.bandwidth_bytes_per_s) * reached for tier, reached in zip(device.tiers, share, strict=True)
    ]
    alone = lambda place, moved: _with_waiting(device.tiers[place], moved, work) / rates[place]
    seconds = [alone(place, moved) for place, moved in enumerate(traffic_bytes)]
    if not device.spill:
        return seconds[0]
    tier_s = jnp.stack(jnp.broadcast_arrays(*seconds), axis=-1)
    if device.schedule == "serial":
        return jnp.sum(tier_s, axis=-1)
    total_s, last = smooth_maximum(tier_s, temperature), len(device.spill)
    for first in range(last):
        behind = sum(traffic_bytes[first + 1 :], start=traffic_bytes[first])
        entered_s = functools.reduce(jnp.minimum, [alone(place, behind) for place in range(first, last + 1)])
        total_s = jnp.maximum(total_s, entered_s)
    return total_s


def _with_waiting(
    tier: MemoryTier, moved: Float[Array, "... operator"], work: OperatorWork
) -> Float[Array, "... operator"]:
    """Bytes that the tier could have moved in the time: an access of a bytes takes as long as a + a_half streamed ones."""
    if tier.given_half_bytes is None and tier.access_latency_s is None:
        return moved
    products = 1.0 if work.shapes is None else jnp.maximum(work.shapes.products, 1.0)
    accesses = jnp.where(moved > 0, work.launches * products, 0.0)
    return moved + accesses * with_last_axis(half_efficiency_bytes(tier))
