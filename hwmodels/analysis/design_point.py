"""Everything that one design point is judged by: speed, energy, memory and area, at the best draft length."""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from hwmodels.chip.bill import chip_area_parts
from hwmodels.chip.energy import knows_energy
from hwmodels.compute.roofline import unit_of
from hwmodels.device import Device
from hwmodels.network.operators import prefill_step
from hwmodels.numerics.fast_compile import priced_at_once
from hwmodels.numerics.scalars import Number, as_float
from hwmodels.parallel.group import held_share
from hwmodels.speculation.acceptance import Acceptance
from hwmodels.speculation.case import Case
from hwmodels.speculation.chains import PricedChains, SpeculationResult, best, priced_chains
from hwmodels.speculation.cycle import CycleCost, baseline_steps, plan_steps, price
from hwmodels.speculation.draft_cost import held_with_draft
from hwmodels.speculation.plan import chain_plan
from hwmodels.step.capacity import held_bytes, longest_context
from hwmodels.step.priced_steps import PricedStep, price_steps

__all__ = ["DesignPoint", "Steps", "chip_area", "design_page", "design_point", "page_steps", "priced_steps"]


@flax.struct.dataclass
class Steps:
    """The steps that decoding consists of, each of all sequences together."""

    prefill: PricedStep
    ar_bf16: PricedStep  # autoregressive, uncompressed
    ar_stored: PricedStep  # autoregressive, as it is stored
    draft: PricedStep
    verify: PricedStep


@flax.struct.dataclass
class DesignPoint:
    """Results of one design point; leaves are "*b". Energies and area are None where the device's are not known."""

    draft_length: Int[Array, "*b"]  # 0: no draft pays
    tokens_per_cycle: Float[Array, "*b"]
    cycle_s: Float[Array, "*b"]
    tokens_per_s: Float[Array, "*b"]  # of all sequences together
    speedup_vs_bf16_ar: Float[Array, "*b"]
    speedup_vs_stored_ar: Float[Array, "*b"]
    ar_bf16_s: Float[Array, "*b"]  # per token of one sequence
    ar_stored_s: Float[Array, "*b"]
    held_bytes: Float[Array, "*b"]  # weights and KV as they are stored, on one device
    capacity_bytes: Float[Array, "*b"]  # of all memories of one device
    longest_context_tokens: Float[Array, "*b"]  # per sequence, with this batch
    output_s: Float[Array, "*b"]  # to decode a sequence's output tokens, at this context
    energy_per_token_j: Float[Array, "*b"] | None  # per token and sequence
    energy_per_token_ar_bf16_j: Float[Array, "*b"] | None
    area_m2: Float[Array, "*b"] | None  # of the chip with its decoders; None where it is not known: see `chip_area`


@priced_at_once
def priced_steps(case: Case, draft_length: Number, *, temperature: Number = 0.0) -> Steps:
    """Work, time and energy of every step, with a draft of the target's shapes.

    Args:
        draft_length: >= 0; a verification has one token more.
        temperature: one number in [0, 1], of the smooth maximum; 0 is exact.
    """
    prefill, plan = prefill_step(case.workload, footprint=case.footprint), case.draft.plan(draft_length)
    steps = [prefill, *baseline_steps(case), *plan_steps(case, plan)]
    priced = price_steps(case.device, case.architecture, steps, routing=case.routing, temperature=temperature)
    prefill, bf16, stored, drafts, verify = priced
    return Steps(prefill, bf16, stored, jax.tree.map(lambda leaf: leaf[0], drafts), verify)


@priced_at_once
def design_point(
    case: Case, result: SpeculationResult, *, temperature: Number = 0.0, cycle: CycleCost | None = None
) -> DesignPoint:
    """Speed, energy and memory at the best draft length, "do not speculate" among them.

    Args:
        result: of `priced_chains` for the same case and temperature.
        temperature: one number in [0, 1], of the smooth maximum; 0 is exact.
        cycle: of the same chains, where its energies of all lengths are to be used; None: those of the chosen length are
            priced on their own, which takes less time where many points are priced, and compiles for longer.
    Gradient: that of the chosen draft length, which itself is piecewise constant.
    """
    device, architecture, workload, footprint = case.device, case.architecture, case.workload, case.footprint
    chosen = best(result)
    batch = as_float(workload.batch)
    stored = {"weight_bits": footprint.target_weight_bits, "kv_bits": footprint.target_kv_bits}
    share, load = held_share(device.group, architecture, workload)
    capacity = sum(as_float(tier.capacity_bytes) for tier in device.tiers)
    energy = ar_energy = None
    if knows_energy(device):
        if cycle is None:
            cycle = price(case, case.draft.plan(chosen.draft_length), temperature=temperature)
            cycle_j = cycle.energy_j
        else:
            cycle_j = None if cycle.energy_j is None else cycle.energy_j[jnp.maximum(chosen.draft_length - 1, 0)]
        ar, plain = cycle.baselines.bf16.cost.energy, cycle.baselines.stored.cost.energy
        if cycle_j is not None and plain is not None:
            # A cycle without a draft is a step of what is stored.
            energy = jnp.where(chosen.draft_length > 0, cycle_j, plain.total_j) / chosen.tokens_per_cycle / batch
        ar_energy = None if ar is None else ar.total_j / batch
    return DesignPoint(
        **vars(chosen),
        tokens_per_s=batch * chosen.tokens_per_cycle / chosen.cycle_s,
        ar_bf16_s=result.ar_bf16_s,
        ar_stored_s=result.ar_stored_s,
        held_bytes=_held(case),
        capacity_bytes=jnp.asarray(capacity),
        longest_context_tokens=longest_context(share, budget_bytes=capacity, batch=load.batch, **stored),
        output_s=as_float(workload.output_tokens) * chosen.cycle_s / chosen.tokens_per_cycle,
        energy_per_token_j=energy,
        energy_per_token_ar_bf16_j=ar_energy,
        area_m2=chip_area(device),
    )


def _held(case: Case) -> Float[Array, "*b"]:
    """Bytes on one device; a second copy of the target's weights for the draft is not among them."""
    workload, footprint, group = case.workload, case.footprint, case.device.group
    if case.draft.architecture is not None:
        parts = {"workload": workload, "footprint": footprint, "draft_cost": case.draft}
        return held_with_draft(case.architecture, **parts, group=group)
    share, load = held_share(group, case.architecture, workload)
    return held_bytes(
        share,
        batch=load.batch,
        context_tokens=workload.context_tokens,
        shared_tokens=workload.shared_tokens,
        weight_bits=footprint.target_weight_bits,
        kv_bits=footprint.target_kv_bits,
    ).total


def design_page(case: Case, acceptance: Acceptance, *, temperature: Number = 0.0) -> tuple[PricedChains, DesignPoint]:
    """Chains of all lengths with what `page_steps` needs, and the design point, all priced in one map; within a program.

    Args:
        acceptance: conditional " position".
        temperature: as of `design_point`.
    """
    case = case.pooled
    _, undrafted = plan_steps(case, chain_plan(0.0))
    also = prefill_step(case.workload, footprint=case.footprint), undrafted
    chains = priced_chains(case, acceptance, temperature=temperature, also=also)
    return chains, design_point(case, chains.result, temperature=temperature, cycle=chains.cycle)


def page_steps(chains: PricedChains, draft_length: int) -> Steps:
    """Steps of one draft length among chains of `design_page`, on the host."""
    prefill, undrafted = chains.cycle.also
    # Chains have one kind of draft step; blocks have one for each length.
    kind = max(draft_length - 1, 0) if chains.cycle.draft.cost.total_s.shape[0] > 1 else 0
    return Steps(
        prefill,
        chains.cycle.baselines.bf16,
        chains.cycle.baselines.stored,
        draft=jax.tree.map(lambda leaf: leaf[kind], chains.cycle.draft),
        verify=jax.tree.map(lambda leaf: leaf[draft_length - 1], chains.cycle.verify) if draft_length else undrafted,
    )


def chip_area(device: Device) -> Float[Array, "*b"] | None:
    """Area of the die: its fixed part, the elements of its matrix unit, decoders, encoders; by technology, `chip_area_parts`.

    Args:
        device: leaves "*b".
    Returns:
        "*b", m^2; None without a `chip` or its area, and where the device has a matrix unit but no area of its elements: a
        constant would say that a larger array costs nothing.
    Gradient: smooth, by the number of elements too.
    """
    if device.technology is not None:
        return chip_area_parts(device, device.technology).total
    if device.chip is None or device.chip.area_m2 is None:
        return None
    coders = [one.total_area_m2 for one in (device.decoder, device.encoder) if one is not None]
    fixed = jnp.asarray(sum(coders, start=as_float(device.chip.area_m2)))
    if device.matrix_unit is None:
        return fixed
    elements = unit_of(device).elements
    if elements is None or device.chip.element_area_m2 is None:
        return None
    return fixed + as_float(elements) * as_float(device.chip.element_area_m2)
