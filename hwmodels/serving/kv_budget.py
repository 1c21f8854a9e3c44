"""Room for requests beside the weights, counted in tokens: keys and values of each, and the states that each sequence keeps."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.device import Device
from hwmodels.network.architecture import Architecture
from hwmodels.network.footprint import Footprint
from hwmodels.network.workload import Workload
from hwmodels.numerics.scalars import Leaf, as_float
from hwmodels.speculation.draft_cost import COMPRESSED_COPY, DraftCost, held_with_draft

__all__ = ["capacity_tokens", "sequence_tokens"]


def capacity_tokens(
    device: Device, architecture: Architecture, *, footprint: Footprint, draft_cost: DraftCost = COMPRESSED_COPY
) -> Float[Array, ""]:
    """Tokens whose keys and values fit beside the weights, those of a draft of its own included; 0 if these do not fit.

    Of several devices: those of all replicas together, each of which holds its own. States of linear attention take room of
    this too: see `sequence_tokens`.

    Args:
        device, architecture, footprint, draft_cost: leaves are single numbers.
    Departs: layers with windows are taken to keep every token.
    """
    parts = {"footprint": footprint, "draft_cost": draft_cost}
    held = _held(device, architecture, 0.0, **parts) - _state_bytes(device, architecture, **parts)
    room = sum(as_float(tier.capacity_bytes) for tier in device.tiers) - held
    replicas = 1.0 if device.group is None else as_float(device.group.data_parallel)
    return replicas * jnp.maximum(jnp.asarray(room), 0.0) / _token_bytes(device, architecture, **parts)


def sequence_tokens(
    device: Device, architecture: Architecture, *, footprint: Footprint, draft_cost: DraftCost = COMPRESSED_COPY
) -> Float[Array, ""]:
    """Tokens whose keys and values take as much as the states of one sequence, whatever its length; 0 without any states.

    Args:
        device, architecture, footprint, draft_cost: leaves are single numbers.
    """
    parts = {"footprint": footprint, "draft_cost": draft_cost}
    return jnp.asarray(_state_bytes(device, architecture, **parts) / _token_bytes(device, architecture, **parts))


def _held(
    device: Device, architecture: Architecture, context: float, *, footprint: Footprint, draft_cost: DraftCost
) -> Leaf:
    """Bytes with one sequence of so many cached tokens."""
    load = Workload(batch=1.0, context_tokens=context)
    parts = {"workload": load, "footprint": footprint, "draft_cost": draft_cost}
    return held_with_draft(architecture, **parts, group=device.group)


def _state_bytes(device: Device, architecture: Architecture, *, footprint: Footprint, draft_cost: DraftCost) -> Leaf:
    return _held(device, architecture, 0.0, footprint=_without_weights(footprint), draft_cost=draft_cost)


def _token_bytes(device: Device, architecture: Architecture, *, footprint: Footprint, draft_cost: DraftCost) -> Leaf:
    """Of keys and values: a state is the same for every token, and single precision does not tell one token beside it."""
    own = draft_cost.architecture
    draft_cost = draft_cost if own is None else dataclasses.replace(draft_cost, architecture=_stateless(own))
    weightless = _without_weights(footprint)
    return _held(device, _stateless(architecture), 1.0, footprint=weightless, draft_cost=draft_cost)


def _stateless(architecture: Architecture) -> Architecture:
    """The same layers without what linear attention keeps of a sequence."""
    return dataclasses.replace(architecture, linear_value_heads=0.0, linear_conv_tokens=0.0)


def _without_weights(footprint: Footprint) -> Footprint:
    nothing = dict.fromkeys(footprint.target_weight_bits, 0.0)
    return dataclasses.replace(footprint, target_weight_bits=nothing, draft_weight_bits=nothing)
