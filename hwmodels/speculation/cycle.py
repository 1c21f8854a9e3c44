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
from hwmodels.network.architecture import (
    EXPERT_MATRICES,
    UNCOMPRESSED_BITS,
    Architecture,
    Footprint,
    Workload,
    uniform_footprint,
)
from hwmodels.network.operators import StepShape, decode_step, draft_step, verify_step
from hwmodels.network.routing import UNIFORM, Routing
from hwmodels.numerics.fast_compile import priced_at_once
from hwmodels.numerics.fields import AMOUNT, check_number, part, short_line
from hwmodels.numerics.scalars import Leaf, Number, as_float, either, rank_of, same_rank, with_rank
from hwmodels.parallel.group import for_draft, sharing_devices
from hwmodels.speculation.draft_cost import (
    COMPRESSED_COPY,
    DraftCost,
    copied_widths,
    fitting_pool,
    held_with_draft,
    separate_draft_bytes,
)
from hwmodels.speculation.engine_logs import NO_ENGINE, EngineTerms, engine_time
from hwmodels.speculation.plan import Plan
from hwmodels.step.capacity import held_bytes
from hwmodels.step.energy import idle_energy
from hwmodels.step.priced_steps import PricedStep, price_steps

__all__ = [
    "Baselines",
    "Case",
    "CycleCost",
    "baseline_steps",
    "baselines",
    "plan_steps",
    "price",
]

# Everything that is priced, as one pytree.


@flax.struct.dataclass
class Case:
    """A device, a network and what runs on it; leaves are single numbers: `vmap` and `grad` take the whole case.

    Attributes:
        footprint: bits read of weights and KV; those of an uncompressed network unless given.
        draft: what a draft step runs; a compressed copy of the target unless given.
        routing: of the target's tokens among the architecture's experts.
        engine: what the engine spends on a cycle beside its kernels.
        pool_fits: static; the draft chooses among as many experts as the first memory has room for, whatever `draft` says.
    """

    device: Device = part(Device)
    architecture: Architecture = part(Architecture)
    workload: Workload = part(Workload)
    footprint: Footprint = part(Footprint, default_factory=lambda: uniform_footprint(UNCOMPRESSED_BITS))
    draft: DraftCost = part(DraftCost, default=COMPRESSED_COPY)
    routing: Routing = part(Routing, default=UNIFORM)
    engine: EngineTerms = part(EngineTerms, default=NO_ENGINE)
    pool_fits: bool = flax.struct.field(pytree_node=False, default=False)

    def check_together(self) -> None:
        """Hold the target to what a draft head need not have. Raises ValueError: a network without layers."""
        check_number("Case.architecture.num_layers", self.architecture.num_layers, AMOUNT)

    def at(self, **load: Leaf) -> Case:
        """The case with other numbers of the workload, by name."""
        return dataclasses.replace(self, workload=dataclasses.replace(self.workload, **load))

    @property
    def unstated(self) -> Case:
        """The case without the draft's statement, which is for readers and would compile anew."""
        return dataclasses.replace(self, draft=dataclasses.replace(self.draft, statement=""))

    @property
    def held_bytes(self) -> Float[Array, "*b"]:
        """Bytes of weights and KV of the target as they are stored, and of a draft's own, on the fullest device."""
        parts = {"workload": self.workload, "footprint": self.footprint, "draft_cost": self.draft}
        return held_with_draft(self.architecture, **parts, group=self.device.group)

    @property
    def pooled(self) -> Case:
        """The case with a number of experts that the draft chooses among, where the first memory decides it."""
        if not self.pool_fits:
            return self
        read = {"workload": self.workload, "footprint": self.footprint, "routing": self.routing}
        pool = fitting_pool(self.device, self.architecture, **read)
        return dataclasses.replace(self, draft=dataclasses.replace(self.draft, pool_experts=pool), pool_fits=False)


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

    def __repr__(self) -> str:
        return short_line(self, "draft_s", "verify_s", "engine_s", "energy_j")

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


def steps_of_draft(case: Case, draft: StepShape) -> tuple[StepShape, StepShape]:
    """A draft step after another draft step, and one after a verification; equal for a draft within the target.

    A network of its own finds what the target has left of a cache, and what a placement keeps of the target in faster memory.

    Args:
        draft: of `plan_steps`.
    """
    if case.draft.architecture is None:
        return draft, draft
    ahead = _without_experts(case)
    later, first = (
        dataclasses.replace(draft, bytes_placed_before=ahead, follows_other_model=after) for after in (0.0, 1.0)
    )
    return later, first


@priced_at_once
def price(case: Case, plan: Plan, *, temperature: Number = 0.0, also: Sequence[StepShape] = ()) -> CycleCost:
    """Cost of a plan's cycles, and of the autoregressive steps that they are compared with, all in one map.

    A draft with an architecture of its own is read at the draft's widths too, with a KV cache of its own; its tokens choose
    experts uniformly. No prompts are processed beside decoding here: see `serving_cycle`.

    Args:
        plan: of one cycle, or of a family.
        temperature: one number in [0, 1], of the smooth maximum; 0 is exact.
        also: further steps of the target; leaves are single numbers.
    Raises:
        ValueError: the footprint lacks a kind or names one that does not exist; or the case has batches, whose axis would be
            taken for that of draft steps: `jax.vmap` maps over cases.
    Gradient: right for every leaf of the case, with the kinks of the roofline at temperature 0.
    """
    device, architecture, cost = case.device, case.architecture, case.draft
    single = {
        "workload": case.workload,
        "footprint": case.footprint,
        "engine": case.engine,
        "device.tiers": device.tiers,
    }
    for name, part_of_case in single.items():
        if rank_of(part_of_case):
            raise ValueError(
                f"Case.{name} has arrays; price takes a case of single numbers: map it over cases by jax.vmap"
            )
    target_steps, (draft_steps, verify_steps) = baseline_steps(case), plan_steps(case, plan)
    shared = {"routing": case.routing, "temperature": temperature}
    if cost.architecture is None:
        steps = [*target_steps, draft_steps, verify_steps, *also]
        bf16, stored, draft, verify, *others = price_steps(device, architecture, steps, **shared)
        first = None
    else:
        steps = [*target_steps, verify_steps, *also]
        bf16, stored, verify, *others = price_steps(device, architecture, steps, **shared)
        groups = steps_of_draft(case, draft_steps)
        draft, first = price_steps(for_draft(device), cost.architecture, groups, temperature=temperature)
    passes = jnp.asarray(as_float(cost.passes))[..., None]
    later_s = jnp.zeros_like(draft.cost.total_s) if first is None else first.cost.total_s - draft.cost.total_s
    repeats, passes, draft_s, later_s = same_rank(
        jnp.asarray(as_float(plan.draft_repeats)), passes, draft.cost.total_s, later_s
    )
    runs = repeats * passes
    counted = {"batch": case.workload.batch, "devices": sharing_devices(device)}
    engine_s = engine_time(case.engine, plan, target=architecture, draft_cost=cost, **counted)
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
def baselines(case: Case, *, temperature: Number = 0.0) -> Baselines:
    """Price autoregressive decoding, in 16 bits and as stored. Arguments: `price`."""
    steps = baseline_steps(case)
    return Baselines(*price_steps(case.device, case.architecture, steps, routing=case.routing, temperature=temperature))


def baseline_steps(case: Case) -> tuple[StepShape, StepShape]:
    """A step of autoregressive decoding in 16 bits, and one of what is stored."""
    return (
        decode_step(case.workload, footprint=uniform_footprint(UNCOMPRESSED_BITS)),
        decode_step(case.workload, footprint=_of_target(case.footprint, case.draft)),
    )


def plan_steps(case: Case, plan: Plan) -> tuple[StepShape, StepShape]:
    """The draft steps of a plan, leaves "step" or single numbers, and its verifications, "*b", with a lookahead's own tokens.

    Both say what else is held in the cycle, a draft's own weights and KV or a copy of the target's for it, which takes room
    from the experts that a placement would keep in a faster memory.
    """
    workload, footprint, cost = case.workload, case.footprint, case.pooled.draft
    draft = draft_step(
        workload,
        footprint=footprint,
        tokens=plan.draft_tokens,
        visible_new_tokens=plan.draft_visible,
        pool_experts=cost.pool_experts,
        attention_share=cost.attention_share,
        feed_forward_share=cost.feed_forward_share,
        visible_share=cost.visible_share,
    )
    tokens, visible = as_float(plan.verify_tokens), as_float(plan.verify_visible)
    # A cycle that drafts nothing is a step of plain decoding.
    ahead = as_float(cost.lookahead_tokens) * jnp.clip(tokens - 1.0, 0.0, 1.0)
    verified = tokens + ahead
    verify = verify_step(
        workload,
        footprint=_of_target(footprint, cost),
        verify_tokens=verified,
        visible_new_tokens=visible + ahead / verified * (as_float(cost.lookahead_visible) - visible),
    )
    if cost.architecture is not None:
        # A network of its own keeps what it writes.
        kept = either(as_float(footprint.draft_kv_bits) < UNCOMPRESSED_BITS, 1.0, 0.0)
        draft = dataclasses.replace(draft, encoded_kv_share=kept)
    copies = copied_widths(footprint, cost)
    stored = {kind: as_float(bits) + copies[kind] for kind, bits in footprint.target_weight_bits.items()}
    draft, verify = (
        dataclasses.replace(step, stored_weight_bits=stored, copy_weight_bits=copies) for step in (draft, verify)
    )
    beside = separate_draft_bytes(workload=workload, footprint=footprint, draft_cost=cost, with_table=False)
    return draft, dataclasses.replace(verify, bytes_before_experts=beside)


def _of_target(footprint: Footprint, draft_cost: DraftCost) -> Footprint:
    """The footprint as the target's steps have it: the cache of a network of its own is none of theirs."""
    if draft_cost.architecture is None:
        return footprint
    return dataclasses.replace(footprint, draft_kv_bits=footprint.target_kv_bits)


def _without_experts(case: Case) -> Leaf:
    """Bytes of the target that a placement keeps in fast memory before a draft's: KV, and weights but experts and tables."""
    bits = case.footprint.target_weight_bits
    table = as_float(bits["embed"]) * as_float(case.architecture.tied_embeddings)
    return held_bytes(
        case.architecture,
        batch=case.workload.batch,
        context_tokens=case.workload.context_tokens,
        shared_tokens=case.workload.shared_tokens,
        weight_bits=bits | dict.fromkeys(EXPERT_MATRICES, 0.0) | {"embed": table},
        kv_bits=case.footprint.target_kv_bits,
    ).total
