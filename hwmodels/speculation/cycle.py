"""The one pricing path: draft-verify cycles of any plan, and the autoregressive decoding that they are compared with.

Source: Leviathan et al. 2023, arXiv:2211.17192, Sec. 3.3, with the draft's cost from the hardware model; Boosting the
    Performance of Tree-Based Speculative Decoding of LLMs on FPGAs, III-A: the target processes all tokens of a tree at once.
Departs: each draft step sees the same context; keys and values of uncommitted tokens are left out of its traffic. Sampling and
    the acceptance test cost an engine's terms, nothing unless one is given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.device import Device
from hwmodels.network.architecture import EXPERT_MATRICES, Architecture
from hwmodels.network.footprint import UNCOMPRESSED_BITS, Footprint, uniform_footprint
from hwmodels.network.operators import StepShape, decode_step, draft_step, verify_step
from hwmodels.network.routing import UNIFORM, Routing
from hwmodels.network.workload import Workload
from hwmodels.numerics.axes import same_rank, with_rank
from hwmodels.numerics.quick_jit import priced_at_once
from hwmodels.numerics.scalars import Leaf, Number, as_float, either
from hwmodels.parallel.group import for_draft
from hwmodels.speculation.draft_cost import COMPRESSED_COPY, DraftCost, copied_widths, held_beside
from hwmodels.speculation.engine_terms import NO_ENGINE, EngineTerms, engine_time
from hwmodels.speculation.plan import Plan
from hwmodels.step.capacity import held_bytes
from hwmodels.step.energy import idle_energy
from hwmodels.step.priced_steps import PricedStep, price_steps

__all__ = [
    "Baselines",
    "CycleCost",
    "baseline_steps",
    "baselines",
    "plan_steps",
    "price_cycle",
]


@flax.struct.dataclass
class Baselines:
    """One step of autoregressive decoding of all sequences together."""

    bf16: PricedStep  # of the uncompressed 16-bit network
    stored: PricedStep  # of the network as it is stored, read at the target's widths


@flax.struct.dataclass
class CycleCost:
    """Cost of one draft-verify cycle, or of a family of them, "*b"."""

    draft: PricedStep  # one draft step of each kind, leaves "step ..."
    verify: PricedStep  # the verification, leaves "*b ..."
    draft_s: Float[Array, "*b"]  # all draft steps of the cycle
    verify_s: Float[Array, "*b"]
    engine_s: Float[Array, "*b"]  # what the engine adds
    #: Of all steps, and what is drawn while the engine works; None where the device's energy is not known.
    energy_j: Float[Array, "*b"] | None
    baselines: Baselines  # what the cycle is compared with
    #: The draft step that follows a verification, of a network of its own, likewise; None: it is as the others are.
    first: PricedStep | None = None
    also: tuple[PricedStep, ...] = ()  # further steps of the target that were priced in the same map

    @property
    def total_s(self) -> Float[Array, "*b"]:
        """Time of the cycle: its draft steps, then the verification, then what the engine adds."""
        return self.draft_s + self.verify_s + self.engine_s

    def draft_runs(self, runs: Float[Array, " step"]) -> list[tuple[Float[Array, " step"], PricedStep]]:
        """Runs of each draft step per cycle, with the one after the verification on its own: together they are its `draft_s`.

        Args:
            runs: forward passes of each kind of draft step.
        """
        if self.first is None:
            return [(runs, self.draft)]
        after = _after_verification(runs)
        return [(runs - after, self.draft), (after, self.first)]


def _after_verification(runs: Float[Array, "*b step"]) -> Float[Array, "*b step"]:
    """Number of the draft's passes of each kind, "*b step", that follow a verification: one per cycle."""
    return runs / jnp.maximum(jnp.sum(runs, axis=-1, keepdims=True), 1.0)


def steps_of_draft(
    draft: StepShape, architecture: Architecture, *, workload: Workload, footprint: Footprint, draft_cost: DraftCost
) -> tuple[StepShape, StepShape]:
    """A draft step after another draft step, and one after a verification; equal for a draft within the target.

    A network of its own finds what the target has left of a cache, and what a placement keeps of the target in faster memory.

    Args:
        draft: of `plan_steps`. architecture: of the target.
    """
    if draft_cost.architecture is None:
        return draft, draft
    ahead = _without_experts(architecture, workload, footprint)
    later, first = (dataclasses.replace(draft, ahead_bytes=ahead, after_other=after) for after in (0.0, 1.0))
    return later, first


@priced_at_once
def price_cycle(
    device: Device,
    architecture: Architecture,
    *,
    footprint: Footprint,
    draft_cost: DraftCost,
    workload: Workload,
    plan: Plan,
    routing: Routing = UNIFORM,
    engine: EngineTerms = NO_ENGINE,
    temperature: Number = 0.0,
    also: Sequence[StepShape] = (),
) -> CycleCost:
    """Price the cycles of a plan, and its baselines in the same map, which compiles once and runs together.

    Args:
        device, architecture, footprint, draft_cost, workload: leaves are single numbers; `vmap` for more.
        footprint: a draft with an architecture of its own is read at the draft's widths too, with a KV cache of its own.
        plan: of one cycle, or of a family.
        routing: of the target's tokens, popularity "expert"; uniform and independent unless given, and for a draft with an
            architecture of its own.
        engine: what the engine spends beside its kernels; leaves are single numbers. No prompts are processed beside decoding
            here: see `serving_cycle`.
        temperature: one number in [0, 1], of the smooth maximum; 0 is exact.
        also: further steps of the target; leaves are single numbers.
    Raises:
        ValueError: the footprint lacks a kind or names one that does not exist.
    Gradient: right for every input, with the kinks of the roofline at temperature 0.
    """
    target_steps = baseline_steps(workload, footprint, draft_cost=draft_cost)
    draft_steps, verify_steps = plan_steps(workload, footprint, plan, draft_cost=draft_cost)
    shared = {"routing": routing, "temperature": temperature}
    if draft_cost.architecture is None:
        steps = [*target_steps, draft_steps, verify_steps, *also]
        bf16, stored, draft, verify, *others = price_steps(device, architecture, steps, **shared)
        first = None
    else:
        steps = [*target_steps, verify_steps, *also]
        bf16, stored, verify, *others = price_steps(device, architecture, steps, **shared)
        groups = steps_of_draft(
            draft_steps, architecture, workload=workload, footprint=footprint, draft_cost=draft_cost
        )
        draft, first = price_steps(for_draft(device), draft_cost.architecture, groups, temperature=temperature)
    passes = jnp.asarray(as_float(draft_cost.passes))[..., None]
    later_s = jnp.zeros_like(draft.cost.total_s) if first is None else first.cost.total_s - draft.cost.total_s
    repeats, passes, draft_s, later_s = same_rank(
        jnp.asarray(as_float(plan.draft_repeats)), passes, draft.cost.total_s, later_s
    )
    runs = repeats * passes
    engine_s = engine_time(engine, plan, target=architecture, draft_cost=draft_cost, batch=workload.batch)
    energy_j = None
    if draft.cost.energy is not None and verify.cost.energy is not None:
        draft_j = jnp.sum(runs * with_rank(draft.cost.energy.total_j, runs.ndim), axis=-1)
        energy_j = draft_j + verify.cost.energy.total_j + idle_energy(device, engine_s)
    return CycleCost(
        draft=draft,
        verify=verify,
        draft_s=jnp.sum(runs * draft_s + _after_verification(runs) * later_s, axis=-1),
        verify_s=verify.cost.total_s,
        engine_s=engine_s,
        energy_j=energy_j,
        baselines=Baselines(bf16=bf16, stored=stored),
        first=first,
        also=tuple(others),
    )


@priced_at_once
def baselines(
    device: Device,
    architecture: Architecture,
    *,
    footprint: Footprint,
    workload: Workload,
    routing: Routing = UNIFORM,
    temperature: Number = 0.0,
) -> Baselines:
    """Price autoregressive decoding, in 16 bits and as stored. Arguments: `price_cycle`."""
    steps = baseline_steps(workload, footprint)
    return Baselines(*price_steps(device, architecture, steps, routing=routing, temperature=temperature))


def baseline_steps(
    workload: Workload, footprint: Footprint, *, draft_cost: DraftCost = COMPRESSED_COPY
) -> tuple[StepShape, StepShape]:
    """A step of autoregressive decoding in 16 bits, and one of what is stored."""
    return (
        decode_step(workload, footprint=uniform_footprint(UNCOMPRESSED_BITS)),
        decode_step(workload, footprint=_of_target(footprint, draft_cost)),
    )


def plan_steps(
    workload: Workload, footprint: Footprint, plan: Plan, *, draft_cost: DraftCost = COMPRESSED_COPY
) -> tuple[StepShape, StepShape]:
    """The draft steps of a plan, leaves "step" or single numbers, and its verifications, "*b".

    Both say what else is held in the cycle, a draft's own weights and KV or a copy of the target's for it, which takes room
    from the experts that a placement would keep in a faster memory.
    """
    draft = draft_step(
        workload,
        footprint=footprint,
        tokens=plan.draft_tokens,
        visible_new_tokens=plan.draft_visible,
        pool_experts=draft_cost.pool_experts,
        attention_share=draft_cost.attention_share,
        feed_forward_share=draft_cost.feed_forward_share,
        visible_share=draft_cost.visible_share,
    )
    verify = verify_step(
        workload,
        footprint=_of_target(footprint, draft_cost),
        verify_tokens=plan.verify_tokens,
        visible_new_tokens=plan.verify_visible,
    )
    if draft_cost.architecture is not None:
        # A network of its own keeps what it writes.
        kept = either(as_float(footprint.draft_kv_bits) < UNCOMPRESSED_BITS, 1.0, 0.0)
        draft = dataclasses.replace(draft, encoded_kv_share=kept)
    copies = copied_widths(footprint, draft_cost)
    stored = {kind: as_float(bits) + copies[kind] for kind, bits in footprint.target_weight_bits.items()}
    draft, verify = (
        dataclasses.replace(step, stored_weight_bits=stored, copy_weight_bits=copies) for step in (draft, verify)
    )
    beside = held_beside(workload=workload, footprint=footprint, draft_cost=draft_cost, with_table=False)
    return draft, dataclasses.replace(verify, beside_bytes=beside)


def _of_target(footprint: Footprint, draft_cost: DraftCost) -> Footprint:
    """The footprint as the target's steps have it: the cache of a network of its own is none of theirs."""
    if draft_cost.architecture is None:
        return footprint
    return dataclasses.replace(footprint, draft_kv_bits=footprint.target_kv_bits)


def _without_experts(architecture: Architecture, workload: Workload, footprint: Footprint) -> Leaf:
    """Bytes of the target that a placement keeps in fast memory before a draft's: KV, and weights but experts and tables."""
    absent = dict.fromkeys(EXPERT_MATRICES, 0.0)
    table = as_float(footprint.target_weight_bits["embed"]) * as_float(architecture.tied_embeddings)
    return held_bytes(
        architecture,
        batch=workload.batch,
        context_tokens=workload.context_tokens,
        shared_tokens=workload.shared_tokens,
        weight_bits=footprint.target_weight_bits | absent | {"embed": table},
        kv_bits=footprint.target_kv_bits,
    ).total
