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
from hwmodels.network.architecture import Architecture
from hwmodels.network.footprint import Footprint
from hwmodels.network.operators import prefill_step
from hwmodels.network.routing import UNIFORM, Routing
from hwmodels.network.workload import Workload
from hwmodels.numerics.quick_jit import priced_at_once
from hwmodels.numerics.scalars import Number, as_float
from hwmodels.parallel.group import held_share
from hwmodels.speculation.acceptance import Acceptance
from hwmodels.speculation.case import Case
from hwmodels.speculation.chains import PricedChains, SpeculationResult, best, priced_chains, speculation_speedup
from hwmodels.speculation.cycle import CycleCost, baseline_steps, plan_steps, price_cycle
from hwmodels.speculation.draft_cost import COMPRESSED_COPY, DraftCost
from hwmodels.speculation.engine_terms import NO_ENGINE, EngineTerms
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
def priced_steps(
    device: Device,
    architecture: Architecture,
    *,
    workload: Workload,
    footprint: Footprint,
    draft_length: Number,
    draft_cost: DraftCost = COMPRESSED_COPY,
    routing: Routing = UNIFORM,
    temperature: Number = 0.0,
) -> Steps:
    """Work, time and energy of every step.

    Args:
        device, architecture, workload, footprint: leaves are single numbers; `vmap` for more.
        draft_length: >= 0; a verification has one token more.
        draft_cost: what the draft runs, of the target's shapes; leaves are single numbers.
        routing: which experts tokens choose; uniform and independent unless given.
        temperature: one number in [0, 1], of the smooth maximum; 0 is exact.
    """
    plan = chain_plan(draft_length)
    draft, verify = plan_steps(workload, footprint, plan, draft_cost=draft_cost)
    shapes = [
        prefill_step(workload, footprint=footprint),
        *baseline_steps(workload, footprint, draft_cost=draft_cost),
        draft,
        verify,
    ]
    priced = price_steps(device, architecture, shapes, routing=routing, temperature=temperature)
    prefill, bf16, stored, drafts, verify = priced
    return Steps(prefill, bf16, stored, jax.tree.map(lambda leaf: leaf[0], drafts), verify)


@priced_at_once
def design_point(
    device: Device,
    architecture: Architecture,
    *,
    workload: Workload,
    footprint: Footprint,
    acceptance: Acceptance,
    draft_cost: DraftCost = COMPRESSED_COPY,
    routing: Routing = UNIFORM,
    engine: EngineTerms = NO_ENGINE,
    temperature: Number = 0.0,
    result: SpeculationResult | None = None,
    cycle: CycleCost | None = None,
) -> DesignPoint:
    """Speed, energy and memory at the best draft length, "do not speculate" among them.

    Args:
        device, architecture, workload, footprint: leaves are single numbers; `vmap` for more.
        acceptance: conditional "position".
        draft_cost: what the draft runs; leaves are single numbers.
        routing: which experts tokens choose; uniform and independent unless given.
        engine: as of `speculation_speedup`.
        temperature: one number in [0, 1], of the smooth maximum; 0 is exact.
        result: of `speculation_speedup` for the same arguments, where it is at hand.
        cycle: of `priced_chains` with that result, where its energies of all lengths are to be used; None: those of the chosen
            length are priced on their own, which takes less time where many points are priced, and compiles for longer.
    Gradient: that of the chosen draft length, which itself is piecewise constant.
    """
    if result is None:
        result = speculation_speedup(
            device,
            architecture,
            workload=workload,
            footprint=footprint,
            acceptance=acceptance,
            draft_cost=draft_cost,
            routing=routing,
            engine=engine,
            temperature=temperature,
        )
    chosen = best(result)
    batch = as_float(workload.batch)
    stored = {"weight_bits": footprint.target_weight_bits, "kv_bits": footprint.target_kv_bits}
    share, load = held_share(device.group, architecture, workload)
    held = held_bytes(
        share,
        batch=load.batch,
        context_tokens=workload.context_tokens,
        shared_tokens=workload.shared_tokens,
        **stored,
    )
    capacity = sum(as_float(tier.capacity_bytes) for tier in device.tiers)
    energy = ar_energy = None
    if knows_energy(device):
        if cycle is None:
            cycle = price_cycle(
                device,
                architecture,
                footprint=footprint,
                draft_cost=draft_cost,
                workload=workload,
                plan=chain_plan(chosen.draft_length),
                routing=routing,
                engine=engine,
                temperature=temperature,
            )
            cycle_j = cycle.energy_j
        else:
            cycle_j = None if cycle.energy_j is None else cycle.energy_j[jnp.maximum(chosen.draft_length - 1, 0)]
        ar, plain = cycle.baselines.bf16.cost.energy, cycle.baselines.stored.cost.energy
        if cycle_j is not None and plain is not None:
            # A cycle without a draft is a step of what is stored.
            energy = jnp.where(chosen.draft_length > 0, cycle_j, plain.total_j) / chosen.tokens_per_cycle / batch
        ar_energy = None if ar is None else ar.total_j / batch
    return DesignPoint(
        draft_length=chosen.draft_length,
        tokens_per_cycle=chosen.tokens_per_cycle,
        cycle_s=chosen.cycle_s,
        tokens_per_s=batch * chosen.tokens_per_cycle / chosen.cycle_s,
        speedup_vs_bf16_ar=chosen.speedup_vs_bf16_ar,
        speedup_vs_stored_ar=chosen.speedup_vs_stored_ar,
        ar_bf16_s=result.ar_bf16_s,
        ar_stored_s=result.ar_stored_s,
        held_bytes=held.total,
        capacity_bytes=jnp.asarray(capacity),
        longest_context_tokens=longest_context(share, budget_bytes=capacity, batch=load.batch, **stored),
        output_s=as_float(workload.output_tokens) * chosen.cycle_s / chosen.tokens_per_cycle,
        energy_per_token_j=energy,
        energy_per_token_ar_bf16_j=ar_energy,
        area_m2=chip_area(device),
    )


def _place(draft_length: Int[Array, ""]) -> Int[Array, ""]:
    """Place of a draft length among 1, 2, ...; the first for 0."""
    return jnp.maximum(draft_length - 1, 0)


def design_page(case: Case, acceptance: Acceptance, *, temperature: Number = 0.0) -> tuple[PricedChains, DesignPoint]:
    """Chains of all lengths with what `page_steps` needs, and the design point, all priced in one map; within a program.

    Args:
        acceptance: conditional " position".
        temperature: as of `design_point`.
    """
    parts = case.parts | {"acceptance": acceptance, "temperature": temperature}
    read = {name: parts[name] for name in ("workload", "footprint")}
    _, undrafted = plan_steps(**read, plan=chain_plan(0.0), draft_cost=parts["draft_cost"])
    also = prefill_step(**read), undrafted
    chains = priced_chains(case.device, case.architecture, **parts, also=also)
    return chains, design_point(case.device, case.architecture, **parts, result=chains.result, cycle=chains.cycle)


def page_steps(chains: PricedChains, draft_length: int) -> Steps:
    """Steps of one draft length among chains of `design_page`, on the host."""
    prefill, undrafted = chains.cycle.also
    return Steps(
        prefill,
        chains.cycle.baselines.bf16,
        chains.cycle.baselines.stored,
        draft=jax.tree.map(lambda leaf: leaf[0], chains.cycle.draft),
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
