"""Steps of one target at one batch: what autoregressive decoding and a cycle of each method execute, move and take.

A step reads what its placement says from the hybrid-bonded (HB) and from the external memory (EXT). Both memories and the
arithmetic of an operator work at the same time, operators follow one another.

Sizes of all networks of Table 3 as arrays, so that one program prices every cell.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from experiments.papers.elmoe3d.fitted import Fitted, Variant
from experiments.papers.elmoe3d.printed import (
    CONTEXT_TOKENS,
    DRAFT_KV_BITS,
    INT8_BITS,
    KV_BITS,
    LOW_BITS,
    MODELS,
    draft_bits,
    eagle_head,
    expert_bits,
    small_model,
    target,
    target_bits,
)
from hwmodels.device import Device
from hwmodels.memory.expert_hits import CharacteristicTime, PowerLawHits, cached_share
from hwmodels.memory.placement import BitSlices, ByMode, DraftCopies, ExpertCache
from hwmodels.network.architecture import EXPERT_MATRICES, KINDS, Architecture, parameters
from hwmodels.network.operators import step_operators
from hwmodels.network.operators.expert_sharing import ExpertReads
from hwmodels.network.operators.steps import StepShape
from hwmodels.network.routing import EVERY_EXPERT, Routing
from hwmodels.numerics.units import BITS_PER_BYTE
from hwmodels.step.capacity import held_bytes
from hwmodels.step.step_cost import step_cost

__all__ = [
    "DRAFT_WIDTH",
    "VERIFIED_NODES",
    "OwnDrafts",
    "Priced",
    "Steps",
    "Targets",
    "cell_steps",
    "own_drafts",
    "pick",
    "stack",
    "targets",
]

#: Nodes of a tree that are verified for each request: the default of EAGLE's code, as the paper prints none. They set
#: arithmetic alone; which experts they touch is fitted. A draft step expands a tenth of them: a cycle drafts ten levels.
VERIFIED_NODES = 60.0
DRAFT_WIDTH = 6.0

#: Experts of a pool in which none fits: a draft of dense layers alone.
_ALMOST_NONE = 1e-3

#: Quantiles of experts whose popularity is told apart.
_QUANTILES = 64


@flax.struct.dataclass
class Priced:
    """Steps, "model batch" each, or one of them."""

    seconds: Float[Array, "*cell"]
    external_j: Float[Array, "*cell"]  # of accesses to the external memory
    bonded_j: Float[Array, "*cell"]  # of accesses to the hybrid-bonded one
    arithmetic_j: Float[Array, "*cell"]
    communication_j: Float[Array, "*cell"]
    static_j: Float[Array, "*cell"]
    touched_experts: Float[Array, "*cell"]  # of a layer
    cached_experts: Float[Array, "*cell"]  # of a layer in a cycle, whole ones or what a draft reads of them


@flax.struct.dataclass
class Steps:
    """Steps of a method; `draft` is one of the cycle's draft steps."""

    autoregressive: Priced
    verify: Priced
    draft: Priced


def _step(bits: Mapping[str, Any], batch: Any, tokens: float, *, drafting: float = 0.0, **more: Any) -> StepShape:
    """A step that reads weights of `bits` and holds them so, unless told otherwise; siblings do not see each other."""
    return StepShape(
        tokens=tokens,
        batch=batch,
        context_tokens=CONTEXT_TOKENS,
        visible_new_tokens=1.0,
        weight_bits=dict(bits),
        kv_bits=more.pop("kv_bits", KV_BITS),
        stored_weight_bits=dict(more.pop("held", bits)),
        stored_kv_bits=more.pop("stored_kv_bits", KV_BITS),
        copy_weight_bits=more.pop("copies", None),
        speculating=0.0 if tokens == 1.0 else 1.0,
        drafting=drafting,
        **more,
    ).complete


def _correlation(independent: Any, nodes: float) -> Any:
    """Correlation of neighbouring tokens by which `nodes` of them touch as many experts as `independent` on their own."""
    return jnp.clip(1.0 - (independent - 1.0) / (nodes - 1.0), 0.0, 1.0)


@flax.struct.dataclass
class _Line:
    """A step of one target and batch with what it is priced by; leaves are single numbers, or stacked "line"."""

    step: StepShape
    routing: Routing
    slice_bits: Any  # of an expert in the cache while speculating
    pooled: Any  # 1: a draft that chooses among the cached experts


@flax.struct.dataclass
class SteepeningHits:
    """Hits f^(beta f^-steepening) at a cached share f: smaller caches find less than a power law says."""

    title: ClassVar[str] = "hits by a power law that steepens as the cache shrinks"

    exponent: Any  # beta, at f = 1
    steepening: Any  # >= 0; 0: a power law

    def hit_share(self, reads: ExpertReads, cached_experts: Any) -> Float[Array, "*b"]:
        """See `HitRule`."""
        share = cached_share(reads, cached_experts)
        exponent = self.exponent * jnp.where(share > 0, share, 1.0) ** -self.steepening
        return PowerLawHits(exponent=exponent, fading=0.0).hit_share(reads, cached_experts)


def _cost(device: Device, placement: Any, architecture: Architecture, line: _Line, *, pools: bool = False) -> Priced:
    """Seconds and joules of a step, and its experts; `pools`: some lines choose among the cached ones alone."""
    device = dataclasses.replace(device, placement=placement)
    step, cached = line.step, jnp.zeros(())
    work = step_operators(architecture, step, line.routing)
    if device.spill:
        cached = placement.draft_experts(device.tiers, work)
    if pools:
        pool = jnp.where(line.pooled > 0, jnp.maximum(cached, _ALMOST_NONE), EVERY_EXPERT)
        work = step_operators(architecture, dataclasses.replace(step, pool_experts=pool), line.routing)
    cost = step_cost(device, work)
    assert work.experts is not None
    energy = cost.energy
    assert energy is not None
    return Priced(
        seconds=cost.total_s,
        external_j=energy.memory_j[-1],
        bonded_j=jnp.sum(energy.memory_j[:-1]),
        arithmetic_j=energy.arithmetic_j,
        communication_j=energy.link_j,
        static_j=energy.static_j,
        touched_experts=work.experts.touched,
        cached_experts=cached,
    )


def cell_steps(
    rules: Variant,
    bonded: Device,
    external: Device,
    inside: Any,
    sizes: Targets,
    own: OwnDrafts,
    fitted: Fitted,
    one_rule: Any,
    batch: Any,
) -> tuple[Priced, dict[str, Steps]]:
    """The baseline's step and all methods' of one target and batch; leaves are single numbers.

    Args:
        rules: static: `lru`, `slices_always` and `steepening` of a variant.
        inside, one_rule: numbers, see `Variant`.
        bonded, external: the chip, and the baseline.
    """
    a, bits, low = sizes.architecture, sizes.bits, sizes.low_bits
    # The f most popular experts have the share f ^ locality of all choices.
    popularity = jnp.diff(jnp.linspace(0.0, 1.0, _QUANTILES + 1) ** fitted.locality) if rules.lru else None
    drafted = fitted.draft_share * fitted.verified_tokens
    choices = {
        1.0: Routing(popularity, 0.0, fitted.independence),
        VERIFIED_NODES: Routing(
            popularity, _correlation(fitted.verified_tokens, VERIFIED_NODES), fitted.speculative_independence
        ),
        DRAFT_WIDTH: Routing(popularity, _correlation(drafted, DRAFT_WIDTH), fitted.speculative_independence),
    }

    def line(step: StepShape, *, slices: Any = sizes.expert_bits, pooled: float = 0.0) -> _Line:
        return _Line(step, choices[float(step.tokens)], slices, pooled)

    def draft(read: Mapping[str, Any], **held: Any) -> StepShape:
        return dataclasses.replace(
            _step(held.pop("held", bits), batch, DRAFT_WIDTH, drafting=1.0, **held), weight_bits=dict(read)
        )

    def target_steps(**held: Any) -> list[StepShape]:
        whole = held.pop("held", bits)
        steps = (_step(whole, batch, tokens, **held) for tokens in (1.0, VERIFIED_NODES))
        return [dataclasses.replace(step, weight_bits=dict(bits)) for step in steps]

    # Networks of their own take room beside the target; copies widen what is held.
    beside, ahead = _room(sizes, own, batch)
    table = inside * (parameters(sizes.architecture)["embed"] * sizes.bits["embed"] / BITS_PER_BYTE)
    lines, kinds = [], []
    for place, method in enumerate(OWN_DRAFTS):
        lines += [line(step) for step in target_steps(bytes_before_experts=beside[place] + table)]
        kinds += [(method, "autoregressive"), (method, "verify")]
    dense = low | dict.fromkeys((*EXPERT_MATRICES, "embed", "norm"), 0.0)
    with_dense = {kind: bits[kind] + dense[kind] for kind in KINDS}
    here = {"bytes_before_experts": table}
    lines += [
        line(target_steps(**here)[0]),
        line(target_steps(held=with_dense, **here)[1]),
        line(draft(low, held=with_dense, **here)),
    ]
    kinds += [("shared experts", kind) for kind in ("autoregressive", "verify", "draft")]
    leading = jnp.minimum(LOW_BITS, sizes.expert_bits)
    lines += [line(step, slices=leading) for step in target_steps(**here)]
    lines += [line(draft(low, **here), slices=leading, pooled=1.0)]
    kinds += [("Elastic-SD", kind) for kind in ("autoregressive", "verify", "draft")]

    alone = together = CharacteristicTime()
    if not rules.lru:
        alone = SteepeningHits(fitted.locality, rules.steepening)
        together = PowerLawHits(
            exponent=jnp.where(one_rule, fitted.locality, fitted.speculative_locality),
            fading=jnp.where(one_rule, 0.0, fitted.fading),
        )
    sliced = lambda slices, hits: BitSlices(slice_bits=slices, hits=hits, whole=True)
    by_mode = lambda slices: ByMode(
        sliced(slices, alone) if rules.slices_always else ExpertCache(hits=alone, whole=True), sliced(slices, together)
    )
    costs = jax.vmap(lambda one: _cost(bonded, by_mode(one.slice_bits), a, one, pools=True))(stack(lines))
    prices = {kind: pick(costs, n) for n, kind in enumerate(kinds)}

    copies = low | {"embed": 0.0, "norm": 0.0}
    with_copies = {"held": {kind: bits[kind] + copies[kind] for kind in KINDS}, "copies": copies} | here
    lines = [line(step) for step in (*target_steps(**with_copies), draft(low, **with_copies))]
    cache = DraftCopies(hits=together, whole=True)
    costs = jax.vmap(lambda one: _cost(bonded, cache, a, one))(stack(lines))
    apart = [pick(costs, n) for n in range(3)]

    own_bits: dict[str, float] = dict.fromkeys(KINDS, INT8_BITS)
    step = _step(own_bits, batch, DRAFT_WIDTH, kv_bits=DRAFT_KV_BITS, stored_kv_bits=DRAFT_KV_BITS)
    price = lambda network, before: _cost(
        bonded,
        ExpertCache(),
        network,
        _Line(dataclasses.replace(step, bytes_placed_before=before), Routing(), INT8_BITS, 0.0),
    )
    drafts = jax.vmap(price)(own.architecture, ahead + table)

    # Where experts are of 4 bits anyway, copies are of the dense layers alone.
    few = sizes.expert_bits < LOW_BITS
    quant = [
        jax.tree.map(lambda some, other: jnp.where(few, some, other), prices["shared experts", kind], other)
        for kind, other in zip(("autoregressive", "verify", "draft"), apart, strict=True)
    ]
    methods = {
        method: Steps(prices[method, "autoregressive"], prices[method, "verify"], pick(drafts, n))
        for n, method in enumerate(OWN_DRAFTS)
    }
    methods["Quant-SD"] = Steps(*quant)
    methods["Elastic-SD"] = Steps(*(prices["Elastic-SD", kind] for kind in ("autoregressive", "verify", "draft")))
    baseline = _cost(external, None, a, line(target_steps()[0]))
    return baseline, methods


def _room(sizes: Targets, own: OwnDrafts, batch: Any) -> tuple[Any, Any]:
    """Bytes of the drafts of their own, weights, embedding and KV, and of what is placed before them, "draft" each."""
    table = own.stored_embedding * INT8_BITS / BITS_PER_BYTE
    held = functools.partial(held_bytes, batch=batch, context_tokens=CONTEXT_TOKENS)
    own_bits = dict.fromkeys(KINDS, INT8_BITS) | {"embed": 0.0}
    kept = jax.vmap(lambda network: held(network, weight_bits=own_bits, kv_bits=DRAFT_KV_BITS).total)(own.architecture)
    static = sizes.bits | dict.fromkeys((*EXPERT_MATRICES, "embed"), 0.0)
    return kept + table, held(sizes.architecture, weight_bits=static, kv_bits=KV_BITS).total + table


#: Methods that draft with a network of their own, in the order of "draft".
OWN_DRAFTS = ("EAGLE3", "SLM-SD")


@flax.struct.dataclass
class Targets:
    """Leaves "model", or single numbers of one target."""

    architecture: Architecture
    bits: dict[str, Any]  # as stored
    low_bits: dict[str, Any]  # as a draft reads it
    expert_bits: Any


@flax.struct.dataclass
class OwnDrafts:
    """Leaves "model draft", or "draft"."""

    architecture: Architecture
    stored_embedding: Any  # elements that take room in HB memory


def stack(trees: list[Any]) -> Any:
    """Trees of one structure as one, leaves with an axis in front."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf, jnp.float32) for leaf in leaves]), *trees)


def pick(tree: Any, place: int) -> Any:
    """One of a stack."""
    return jax.tree.map(lambda leaf: leaf[place], tree)


@functools.cache
def targets() -> Targets:
    """The four targets."""
    return stack([Targets(target(m), target_bits(m), draft_bits(m), expert_bits(m)) for m in MODELS])


@functools.cache
def own_drafts() -> OwnDrafts:
    """An EAGLE head and the small model for each target."""
    drafts = [[eagle_head(m), small_model()] for m in MODELS]
    return stack([stack([OwnDrafts(d.architecture, d.stored_embedding) for d in row]) for row in drafts])
