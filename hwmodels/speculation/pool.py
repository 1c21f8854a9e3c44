"""Size of a draft's pool of experts: a share of all, or what fits into the fast memory."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.device import Device
from hwmodels.memory.placement import placement_of
from hwmodels.network.architecture import Architecture
from hwmodels.network.footprint import Footprint
from hwmodels.network.operators import draft_step, step_operators
from hwmodels.network.routing import EVERY_EXPERT, UNIFORM, Routing
from hwmodels.network.workload import Workload
from hwmodels.numerics.scalars import as_float, either
from hwmodels.speculation.draft_cost import DraftCost

__all__ = ["fitting_pool", "with_pool"]


def fitting_pool(
    device: Device, architecture: Architecture, *, workload: Workload, footprint: Footprint, routing: Routing = UNIFORM
) -> Float[Array, "*b"]:
    """Number of a layer's experts whose draft bits fit into the first memory; no fewer than a token chooses.

    Args:
        device, architecture, workload, footprint: leaves are single numbers; `vmap` for more.
        routing: which experts tokens choose.
    Returns:
        "*b", in [experts per token, number of experts]; all experts on a device with one memory.
    Gradient: by capacities and sizes, with kinks where all or too few fit.
    Source: ELMoE-3D, 4.2: a subset of experts, sized to fit the room that weights and KV leave in the bonded memory.
    """
    all_, least = (jnp.asarray(as_float(x)) for x in (architecture.num_experts, architecture.experts_per_token))
    if not device.spill:
        return all_
    work = step_operators(architecture, draft_step(workload, footprint=footprint), routing)
    held = placement_of(device).draft_experts(device.tiers, work)
    held = jnp.where(held > least, held, least)
    return jnp.where(held < all_, held, all_)


def with_pool(cost: DraftCost, priced: Architecture, pool_share: Float[Array, "*layer"] | float | None) -> DraftCost:
    """The cost of a draft that chooses among so many of the priced network's experts; the same without a share.

    Args:
        pool_share: from a token's own number of experts (0) to all (1); one number for all layers.
    """
    if pool_share is None:
        return cost
    experts, chosen = as_float(priced.num_experts), as_float(priced.experts_per_token)
    pool = chosen + jnp.mean(jnp.asarray(pool_share)) * (experts - chosen)
    return dataclasses.replace(cost, pool_experts=either(experts > 0, pool, EVERY_EXPERT))
