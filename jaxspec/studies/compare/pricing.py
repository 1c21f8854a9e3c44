"""Chains of every length and plain decoding on a device: seconds, joules, bytes held."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels import DraftCost, Footprint, chain_plan, price_cycle
from hwmodels.speculation.draft_cost import held_with_draft
from jaxspec.tuning.objective import Pricing

__all__ = ["ChainPrices", "capacity_bytes", "price_chains"]


class ChainPrices(NamedTuple):
    """Of one draft, or of a compression, on the host.

    Attributes:
        draft_step_s: one draft step.
        cycle_s, energy_j: of chains of 0, 1, 2, ... drafted tokens, all sequences together; 0 is a step of plain decoding of
            what is stored. Energy is None where the device's is not known.
        ar_bf16_s: a step of plain decoding of the 16-bit network.
        held_bytes: weights and KV of target and draft, on each device.
    """

    draft_step_s: float
    cycle_s: Float[np.ndarray, " length"]
    energy_j: Float[np.ndarray, " length"] | None
    ar_bf16_s: float
    held_bytes: float


def price_chains(pricing: Pricing, footprint: Footprint, draft: DraftCost, longest: int) -> ChainPrices:
    """Price chains of up to `longest` drafted tokens at the workload's own context.

    Args:
        footprint: read by draft and verification; of a draft network, its own widths stand under the draft's.
    """
    # The statement is for readers: it must not compile anew.
    cost = dataclasses.replace(draft, statement="")
    found = jax.device_get(_priced(pricing, footprint, cost, jnp.arange(1.0, longest + 1.0)))
    draft_step_s, cycle_s, energy_j, plain_s, plain_j, ar_bf16_s, held = found
    energy = None if energy_j is None or plain_j is None else np.concatenate([[plain_j], energy_j]).astype(np.float64)
    return ChainPrices(
        float(draft_step_s),
        np.concatenate([[plain_s], cycle_s]).astype(np.float64),
        energy,
        float(ar_bf16_s),
        float(held),
    )


def capacity_bytes(pricing: Pricing) -> float:
    """All memories of a device."""
    return sum(float(tier.capacity_bytes) for tier in (pricing.device.memory, *pricing.device.spill))


@jax.jit
def _priced(
    pricing: Pricing, footprint: Footprint, draft: DraftCost, lengths: Float[Array, " length"]
) -> tuple[Array | None, ...]:
    parts = {"footprint": footprint, "draft_cost": draft, "workload": pricing.workload}
    priced = price_cycle(
        pricing.device, pricing.architecture, plan=chain_plan(lengths), routing=pricing.routing, **parts
    )
    plain = priced.baselines.stored.cost
    return (
        priced.draft.cost.total_s[0] * draft.passes,  # the only kind of draft step that a chain has
        priced.total_s,
        priced.energy_j,
        plain.total_s,
        None if plain.energy is None else plain.energy.total_j,
        priced.baselines.bf16.cost.total_s,
        held_with_draft(pricing.architecture, **parts, group=pricing.device.group),
    )
