"""Speedups of Table 3 from the fitted numbers: steps of `hwmodels` on the catalog's devices, under the placements of section 7.1.

A step reads what its placement says from the hybrid-bonded (HB) and from the external memory (EXT). Both memories and the arithmetic
of an operator work at the same time, operators follow one another. A cycle is ten draft steps and one verification and gains 1 + 10 alpha tokens.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from experiments.papers.elmoe3d.fitted import BOUNDS, PER_MODEL, Fitted, Variant
from experiments.papers.elmoe3d.networks import (
    CONTEXT_TOKENS,
    DRAFT_KV_BITS,
    INT8_BITS,
    KV_BITS,
    LOW_BITS,
    draft_bits,
    eagle_head,
    expert_bits,
    small_model,
    target,
    target_bits,
)
from experiments.papers.elmoe3d.printed import BATCHES, METHODS, MODELS
from hwmodels import catalog
from hwmodels.device import Device
from hwmodels.memory.expert_hits import CharacteristicTime, PowerLawHits
from hwmodels.memory.placement import BitSlices, ByMode, DraftCopies, ExpertCache
from hwmodels.network.architecture import EXPERT_MATRICES, KINDS, Architecture
from hwmodels.network.operators.steps import StepShape
from hwmodels.network.routing import EVERY_EXPERT, Routing
from hwmodels.numerics.units import BITS_PER_BYTE
from hwmodels.step.capacity import held_bytes
from hwmodels.step.step_cost import step_cost

__all__ = ["DRAFT_WIDTH", "VERIFIED_NODES", "OWN_DRAFTS", "Priced", "Speedups", "Steps", "devices", "speedups"]

#: Nodes of a tree that are verified for each request: the default of EAGLE's code, as the paper prints none. They set arithmetic
#: alone; which experts they touch is fitted. A draft step expands a tenth of them, since a cycle drafts ten levels.
VERIFIED_NODES = 60.0
DRAFT_WIDTH = 6.0

#: Methods that draft with a network of their own.
OWN_DRAFTS = ("EAGLE3", "SLM-SD")


class Devices(NamedTuple):
    """The paper's chip with a capacity of HB memory, and the baseline with as many PEs and external memory alone."""

    bonded: Device
    external: Device


@flax.struct.dataclass
class Priced:
    """Steps, "model batch" each."""

    seconds: Float[Array, "model batch"]
    bonded_bytes: Float[Array, "model batch"]
    external_bytes: Float[Array, "model batch"]
    flops: Float[Array, "model batch"]
    touched_experts: Float[Array, "model batch"]  # of a layer


@flax.struct.dataclass
class Steps:
    """Steps of a method; `draft` is one of the cycle's draft steps."""

    autoregressive: Priced
    verify: Priced
    draft: Priced


@flax.struct.dataclass
class Speedups:
    """Over autoregressive decoding on the baseline, "model method batch"."""

    autoregressive: Float[Array, "model method batch"]
    speculative: Float[Array, "model method batch"]
    baseline: Priced
    steps: dict[str, Steps]


@functools.cache
def devices(capacity_gb: int) -> Devices:
    """The chip with 4 or 8 GB, and the baseline of the same throughput."""
    bonded, external = catalog.device(f"elmoe3d-hb{capacity_gb}"), catalog.device("elmoe3d-xpu")
    unit = dataclasses.replace(external.matrix_unit, pes=bonded.matrix_unit.pes)
    peak = bonded.peak_flops_per_s
    return Devices(bonded, dataclasses.replace(external, matrix_unit=unit, peak_flops_per_s=peak))


@flax.struct.dataclass
class _Targets:
    """Sizes of the targets, leaves "model"."""

    architecture: Architecture
    bits: dict[str, Any]
    low_bits: dict[str, Any]
    expert_bits: Any


@flax.struct.dataclass
class _Own:
    """Drafts that are networks of their own, leaves "model draft"."""

    architecture: Architecture
    stored_embedding: Any


def _stack(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.asarray(leaves, jnp.float32), *trees)


def _stack_trees(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf, jnp.float32) for leaf in leaves]), *trees)


@functools.cache
def _targets() -> _Targets:
    return _Targets(
        _stack([target(m) for m in MODELS]),
        _stack([target_bits(m) for m in MODELS]),
        _stack([draft_bits(m) for m in MODELS]),
        jnp.asarray([expert_bits(m) for m in MODELS]),
    )


@functools.cache
def _own() -> _Own:
    drafts = [[eagle_head(m), small_model()] for m in MODELS]
    stacked = [_stack([_Own(d.architecture, d.stored_embedding) for d in of_target]) for of_target in drafts]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *stacked)


def _step(bits: Mapping[str, Any], batch: Any, tokens: float, *, drafting: float = 0.0, **more: Any) -> StepShape:
    """A step that reads weights of `bits` and holds them so, unless told otherwise; siblings of a tree do not see each other."""
    return StepShape(
        tokens=tokens,
        batch=batch,
        context_tokens=CONTEXT_TOKENS,
        logit_tokens=tokens,
        visible_new_tokens=1.0,
        weight_bits=dict(bits),
        kv_bits=more.pop("kv_bits", KV_BITS),
        stored_weight_bits=dict(more.pop("held", bits)),
        stored_kv_bits=more.pop("stored_kv_bits", KV_BITS),
        copy_weight_bits=dict(more.pop("copies", dict.fromkeys(KINDS, 0.0))),
        speculating=0.0 if tokens == 1.0 else 1.0,
        drafting=drafting,
        **more,
    )


def _correlation(independent: Any, nodes: float) -> Any:
    """Correlation of neighbouring tokens by which `nodes` of them touch as many experts as `independent` on their own."""
    return jnp.clip(1.0 - (independent - 1.0) / (nodes - 1.0), 0.0, 1.0)


def _hits(kind: str, exponent: Any, fading: Any) -> Any:
    """The rule of an expert cache, see `Variant`."""
    if kind == "lru":
        return CharacteristicTime()
    return PowerLawHits(exponent=exponent, fading=fading if kind == "fading" else 0.0)


@flax.struct.dataclass
class _Line:
    """A step of one target and batch with what it is priced by; leaves are single numbers, or stacked "line"."""

    step: StepShape
    routing: Routing
    slice_bits: Any  # of an expert in the cache while speculating
    pooled: Any  # 1: a draft that chooses among the cached experts


def _cost(device: Device, placement: Any, architecture: Architecture, line: _Line) -> Priced:
    """Seconds of a step, what it moved and what it computed."""
    device = dataclasses.replace(device, placement=placement)
    step = line.step
    if device.spill:
        pool = placement.draft_experts((device.memory, *device.spill), step.operators(architecture))
        pool = jnp.where(line.pooled > 0, jnp.maximum(pool, _ALMOST_NONE), EVERY_EXPERT)
        step = dataclasses.replace(step, pool_experts=pool)
    work = step.operators(architecture, line.routing)
    cost = step_cost(device, work)
    moved = jnp.sum(cost.traffic_bytes, axis=0)
    return Priced(
        seconds=cost.total_s,
        bonded_bytes=jnp.sum(moved) - moved[-1],
        external_bytes=moved[-1],
        flops=jnp.sum(work.flops),
        touched_experts=work.experts.touched,
    )


#: Experts of a pool in which none fits: a draft of dense layers alone.
_ALMOST_NONE = 1e-3


def _cells(
    variant: Variant, bonded: Device, external: Device, sizes: _Targets, own: _Own, fitted: Fitted, batch: Any
) -> tuple[Priced, dict[str, Steps]]:
    """The baseline's step and all methods' of one target and batch."""
    a, bits, low = sizes.architecture, sizes.bits, sizes.low_bits
    popularity = _popularity(fitted.locality) if "lru" in (variant.verify_hits, variant.decode_hits) else None
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
    lines, kinds = [], []
    for place, method in enumerate(OWN_DRAFTS):
        lines += [line(step) for step in target_steps(beside_bytes=beside[place])]
        kinds += [(method, "autoregressive"), (method, "verify")]
    dense = low | dict.fromkeys((*EXPERT_MATRICES, "embed", "norm"), 0.0)
    with_dense = {kind: bits[kind] + dense[kind] for kind in KINDS}
    lines += [line(target_steps()[0]), line(target_steps(held=with_dense)[1]), line(draft(low, held=with_dense))]
    kinds += [("shared experts", kind) for kind in ("autoregressive", "verify", "draft")]
    leading = jnp.minimum(LOW_BITS, sizes.expert_bits)
    lines += [line(step, slices=leading) for step in target_steps()] + [line(draft(low), slices=leading, pooled=1.0)]
    kinds += [("Elastic-SD", kind) for kind in ("autoregressive", "verify", "draft")]

    alone = _hits(variant.decode_hits, fitted.locality, 0.0)
    exponent = fitted.locality if variant.verify_hits == "autoregressive" else fitted.speculative_locality
    together = _hits(variant.verify_hits, exponent, fitted.fading)
    by_mode = lambda slices: ByMode(
        ExpertCache(hits=alone, whole=variant.whole),
        BitSlices(slice_bits=slices, hits=together, whole=variant.whole),
    )
    found = jax.vmap(lambda one: _cost(bonded, by_mode(one.slice_bits), a, one))(_stack_trees(lines))
    prices = {kind: jax.tree.map(lambda leaf, n=n: leaf[n], found) for n, kind in enumerate(kinds)}

    copies = low | {"embed": 0.0, "norm": 0.0}
    with_copies = {"held": {kind: bits[kind] + copies[kind] for kind in KINDS}, "copies": copies}
    lines = [line(step) for step in (*target_steps(**with_copies), draft(low, **with_copies))]
    cache = DraftCopies(hits=together, whole=variant.whole)
    found = jax.vmap(lambda one: _cost(bonded, cache, a, one))(_stack_trees(lines))
    apart = [jax.tree.map(lambda leaf, n=n: leaf[n], found) for n in range(3)]

    own_bits = dict.fromkeys(KINDS, INT8_BITS)
    step = _step(own_bits, batch, DRAFT_WIDTH, kv_bits=DRAFT_KV_BITS, stored_kv_bits=DRAFT_KV_BITS)
    price = lambda network, before: _cost(
        bonded, ExpertCache(), network, _Line(dataclasses.replace(step, ahead_bytes=before), Routing(), INT8_BITS, 0.0)
    )
    drafts = jax.vmap(price)(own.architecture, ahead)

    # Where experts are of 4 bits anyway, copies are of the dense layers alone.
    few = sizes.expert_bits < LOW_BITS
    quant = [
        jax.tree.map(lambda some, other: jnp.where(few, some, other), prices["shared experts", kind], other)
        for kind, other in zip(("autoregressive", "verify", "draft"), apart, strict=True)
    ]
    methods = {
        method: Steps(
            prices[method, "autoregressive"],
            prices[method, "verify"],
            jax.tree.map(lambda leaf, n=n: leaf[n], drafts),
        )
        for n, method in enumerate(OWN_DRAFTS)
    }
    methods["Quant-SD"] = Steps(*quant)
    methods["Elastic-SD"] = Steps(*(prices["Elastic-SD", kind] for kind in ("autoregressive", "verify", "draft")))
    baseline = _cost(external, None, a, line(target_steps()[0]))
    return baseline, methods


def _room(sizes: _Targets, own: _Own, batch: Any) -> tuple[Any, Any]:
    """Bytes of the drafts of their own, weights, embedding and KV, and of what is placed before them, "draft" each."""
    table = own.stored_embedding * INT8_BITS / BITS_PER_BYTE
    held = functools.partial(held_bytes, batch=batch, context_tokens=CONTEXT_TOKENS)
    own_bits = dict.fromkeys(KINDS, INT8_BITS) | {"embed": 0.0}
    kept = jax.vmap(lambda network: held(network, weight_bits=own_bits, kv_bits=DRAFT_KV_BITS).total)(own.architecture)
    static = sizes.bits | dict.fromkeys((*EXPERT_MATRICES, "embed"), 0.0)
    return kept + table, held(sizes.architecture, weight_bits=static, kv_bits=KV_BITS).total + table


def _popularity(exponent: Any) -> Any:
    """Popularity of experts by rank under which the f most popular ones have the share f ^ exponent of all choices."""
    return jnp.diff(jnp.linspace(0.0, 1.0, _QUANTILES + 1) ** exponent)


_QUANTILES = 64


#: Axes of `Fitted` over targets: three fields have one, the others are shared.
_BY_MODEL = Fitted(*(0 if field in PER_MODEL else None for field in BOUNDS))


@functools.partial(jax.jit, static_argnames="variant")
def _speedups(
    bonded: Device, external: Device, sizes: _Targets, own: _Own, fitted: Fitted, acceptance: Any, *, variant: Variant
) -> Speedups:
    run = functools.partial(_cells, variant, bonded, external)
    by_batch = jax.vmap(run, in_axes=(None, None, None, 0))
    by_model = jax.vmap(by_batch, in_axes=(0, 0, _BY_MODEL, None))
    baseline, found = by_model(sizes, own, fitted, jnp.asarray(BATCHES, jnp.float32))
    alone, together = [], []
    for place, method in enumerate(METHODS):
        steps, accepted = found[method], acceptance[:, place]
        cycle_s = variant.draft_depth * steps.draft.seconds + steps.verify.seconds
        alone.append(baseline.seconds / steps.autoregressive.seconds)
        together.append(_gained(accepted, variant) * baseline.seconds / cycle_s)
    return Speedups(jnp.stack(alone, axis=1), jnp.stack(together, axis=1), baseline, found)


def _gained(acceptance: Any, variant: Variant) -> Any:
    """Tokens of a cycle."""
    if variant.alpha_by_token:
        return sum(acceptance**n for n in range(variant.draft_depth + 1))
    return 1.0 + acceptance * variant.draft_depth


def speedups(
    fitted: Fitted, capacity_gb: int, acceptance: Float[Array, "model method batch"], variant: Variant = Variant()
) -> Speedups:
    """All speedups of a half of Table 3.

    Args:
        acceptance: printed, as fractions of the drafted tokens.
    """
    bonded, external = devices(capacity_gb)
    accepted = jnp.asarray(acceptance, jnp.float32)
    return _speedups(bonded, external, _targets(), _own(), fitted, accepted, variant=variant)
