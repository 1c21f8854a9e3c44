"""The objective: from knobs to acceptance, footprint and time per token in one differentiable program.

Acceptance is measured on the network at hand; time is that of the priced architecture on the device. The two meet in the bits
per weight of each matrix kind (the mean over layers, which all have the same size) and the conditional acceptance.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int

from hwmodels import (
    Acceptance,
    Architecture,
    Case,
    DraftCost,
    Footprint,
    SpeculationResult,
    priced_chains,
    uniform_weight_bits,
)
from hwmodels.network.architecture import UNCOMPRESSED_BITS, attention_layers, attention_shape, linear_shape
from hwmodels.numerics.scalars import Leaf, as_float
from hwmodels.speculation import expected_log_speedup
from hwmodels.speculation.draft_cost import with_pool
from jaxspec.compress.footprint import means_by_kind, with_head
from jaxspec.compress.knobs import Knobs
from jaxspec.compress.rematerialised import KEPT
from jaxspec.compress.weights import HEAD, draft_head, draft_view
from jaxspec.models.config import DecoderConfig
from jaxspec.models.streamed import is_streamed
from jaxspec.speculate.acceptance import block_forward, compare_with_target
from jaxspec.speculate.hotness import text_pools
from jaxspec.speculate.sampling import SAMPLING, Decoding
from jaxspec.tuning.calibration import Calibration

__all__ = [
    "DraftMeasurement",
    "ObjectiveName",
    "conditional_acceptance",
    "mean_log_speedup",
    "measure",
    "price",
    "priced_draft",
    "priced_footprint",
]

# Bits of a network's own matrices as bits of the kinds that an architecture has.

#: Matrices of a feed-forward network, dense or of an expert.
_FEED_FORWARD = ("gate", "up", "down")

#: Matrices of attention, and those of latent, then of linear attention that they count for.
_ATTENTION = {
    "q": ("q_up", "q_down", "in_qkv"),
    "k": ("kv_down", "k_up", "in_qkv"),
    "v": ("v_up", "in_qkv"),
    "o": ("out",),
}


def priced_footprint(measured: Footprint, architecture: Architecture | None = None) -> Footprint:
    """Means over layers by kind; embeddings, norms and routers stay at 16 bits, and so does a head that was not measured.

    What the network that runs lacks is stored as its counterpart: experts and shared experts as its dense feed-forward
    matrices, dense ones as its shared experts', or else its experts', and a gate as what it gates. Projections of linear
    attention count for those of attention, by their numbers of weights in the priced architecture.

    Args:
        measured: of the network that runs; leaves are " layer", those of the head single numbers.
        architecture: that is priced; None: matrices of all layers count alike.
    """

    def by_kind(bits: dict[str, Array]) -> dict[str, Any]:
        own = means_by_kind(bits)
        of = lambda *names: next(own[name] for name in names if name in own)
        dense = {part: of(part, f"shared_{part}", f"expert_{part}", "up") for part in _FEED_FORWARD}
        experts = {f"expert_{part}": own.get(f"expert_{part}", dense[part]) for part in _FEED_FORWARD}
        shared = sum(own.get(f"shared_{part}", dense[part]) for part in _FEED_FORWARD) / 3.0
        attention = {kind: of(kind, *others) for kind, others in _ATTENTION.items()}
        if "in_qkv" in own and architecture is not None:
            attention |= _with_linear(attention, own, architecture)
        elif "in_qkv" in own:
            both = {"q": ("q", "in_qkv", "in_z"), "k": ("k", "in_qkv"), "v": ("v", "in_qkv"), "o": ("o", "out")}
            together = lambda names: jnp.concatenate([jnp.asarray(bits[name]) for name in names if name in bits])
            attention |= {kind: jnp.mean(together(names)) for kind, names in both.items()}
        head = {HEAD: bits[HEAD]} if HEAD in bits else {}
        return uniform_weight_bits(16.0) | attention | dense | experts | {"shared": shared} | head

    return Footprint(
        draft_weight_bits=by_kind(measured.draft_weight_bits),
        target_weight_bits=by_kind(measured.target_weight_bits),
        draft_kv_bits=jnp.mean(measured.draft_kv_bits),
        target_kv_bits=jnp.mean(measured.target_kv_bits),
    )


def _with_linear(attention: Mapping[str, Any], own: Mapping[str, Any], architecture: Architecture) -> dict[str, Any]:
    """Bits of attention's kinds over layers of both sorts; how much a head learns and forgets comes out of 16-bit matrices."""
    a = jax.tree.map(as_float, architecture)
    shape, linear = attention_shape(a), linear_shape(a)
    layers, linear_layers = attention_layers(a), a.num_linear_layers
    keys = a.num_kv_heads * a.head_dim
    queries = shape.query_size + a.attention_gate * shape.output_size
    rates = a.linear_rates * a.linear_value_heads

    def mean(kind: str, rows: Leaf, of_linear: Iterable[tuple[Leaf, Any]]) -> Any:
        parts = [(layers * rows, attention[kind]), *((linear_layers * each, bits) for each, bits in of_linear)]
        return sum(weight * bits for weight, bits in parts) / sum(weight for weight, _ in parts)

    # Of short convolutions these are rows of a second gate.
    of_rates = jnp.where(a.linear_key_dim > 0, UNCOMPRESSED_BITS, own["in_z"])
    queried = (linear.keys, own["in_qkv"]), (linear.values, own["in_z"]), (rates, of_rates)
    return {
        "q": mean("q", queries, queried),
        "k": mean("k", keys, ((linear.keys, own["in_qkv"]),)),
        "v": mean("v", keys, ((linear.values, own["in_qkv"]),)),
        "o": mean("o", shape.output_size, ((linear.values, own["out"]),)),
    }


#: What tuning may climb; the others may be constraints beside it.
ObjectiveName = Literal["speedup", "kl", "bits_per_byte"]


#: Activations that the backward pass may keep; beyond, it computes them again.
_KEPT_BYTES = 1 << 30


@struct.dataclass
class DraftMeasurement:
    """What one draft does on a batch of text; all leaves are differentiable in the knobs when it is soft.

    Attributes:
        survival: P(draft tokens 1..d all accepted), mean over the starts.
        overlap: P(a draft token is accepted), mean over all positions of the text whatever was drafted before; survival at each
            depth knows those at its own depth alone.
        kl: KL(target || draft), nats per token.
        cross_entropy: of the draft on the text, nats per token.
        footprint: bits read of the network's own matrices and KV, leaves are " layer"; and of the head, single numbers, where
            the scheme compresses it.
        pool_share: where the size of the pools of experts lies between a token's own number (0) and all (1); None: no pools.
    """

    survival: Float[Array, " depth"]
    overlap: Float[Array, ""]
    kl: Float[Array, ""]
    cross_entropy: Float[Array, ""]
    footprint: Footprint
    pool_share: Float[Array, " layer"] | None = None


def conditional_acceptance(survival: Float[Array, "*b depth"]) -> Float[Array, "*b depth"]:
    """P(token d accepted | all before accepted); 0 where nothing ever survives."""
    before = jnp.concatenate([jnp.ones_like(survival[..., :1]), survival[..., :-1]], axis=-1)
    return jnp.where(before > 0, survival / jnp.where(before > 0, before, 1.0), 0.0)


def priced_draft(pricing: Case, measured: DraftMeasurement) -> DraftCost:
    """What a draft step of the priced network costs: a compressed copy whose tokens choose among a pool of its experts.

    The pool has as large a share of the priced network's experts as of the measured one's, in the mean over layers.
    """
    return with_pool(DraftCost(), pricing.architecture, measured.pool_share)


def measure(
    calibration: Calibration,
    knobs: Knobs,
    *,
    windows: Int[Array, " batch"],
    offset: Int[Array, ""] | int,
    soft_temperature: Float[Array, ""] | float | None,
    decoding: Decoding = SAMPLING,
    counted: Float[Array, " batch"] | None = None,
) -> DraftMeasurement:
    """Build the draft and run it once over some windows of calibration text.

    Args:
        windows: which windows.
        offset: shifts the roots (see `block_pass`).
        soft_temperature: of masks and blends; None builds the hard draft.
        decoding: how tokens are chosen.
        counted: whether a window counts (1) or fills a place alone (0); None: all count.
    """
    text, kv, config = calibration.window(windows), calibration.kv, calibration.config
    block = knobs.draft_length_logits.shape[0]
    # What streams in is never kept for the backward pass, but streams in again.
    large = is_streamed(calibration.params) or _is_large(config, windows.shape[0], text.hidden.shape[1])
    policy = KEPT if large else None
    options = {"config": config, "windows": windows, "policy": policy, "counted": counted}
    view = draft_view(calibration.prepared, kv, knobs, soft_temperature, **options)
    choices = None if calibration.choices is None else jnp.take(calibration.choices, windows, axis=0)
    of_pools: dict[str, Any] = {"first": text.first, "temperature": soft_temperature, "sharing": calibration.sharing}
    if counted is not None and calibration.sharing > 1:
        # What does not count chooses no expert of the pool that it would share.
        of_pools["before"] = jnp.where(counted > 0, 0, text.tokens.shape[1])
    pools = text_pools(choices, config, knobs, **of_pools)
    ran = block_forward(calibration.params, config, text, kv, offset=offset, block=block, view=view, pools=pools)
    draft_ends, footprint = calibration.params, _of_present_matrices(ran.facts, config)
    if knobs.scheme.facts.head:
        head = draft_head(calibration.params, calibration.prepared[HEAD], knobs, soft_temperature)
        draft_ends, footprint = draft_ends | {HEAD: head.values}, with_head(footprint, head.bits)
    passed = compare_with_target(ran, text, (calibration.params, draft_ends), config, decoding)
    return DraftMeasurement(
        survival=_mean(passed.survival, counted, (0, 1)),
        overlap=_mean(passed.overlap, counted, (0, 1, 2)),
        kl=_mean(passed.kl, counted, (0, 1, 2)),
        cross_entropy=_mean(passed.cross_entropy, counted, (0, 1, 2)),
        footprint=footprint,
        pool_share=None if pools is None else pools.sizes.share,
    )


def _mean(
    values: Float[Array, "batch start depth"], counted: Float[Array, " batch"] | None, axes: tuple[int, ...]
) -> Array:
    """Mean over some axes, the first among them, of the sequences that count."""
    if counted is None:
        return jnp.mean(values, axis=axes)
    of_each = math.prod(values.shape[axis] for axis in axes[1:])
    return jnp.sum(values * counted[:, None, None], axis=axes) / (jnp.sum(counted) * of_each)


def _of_present_matrices(footprint: Footprint, config: DecoderConfig) -> Footprint:
    """Bits of each kind of matrix, and of keys and values, in the layers that have it; leaves " layer"."""

    def present(bits: dict[str, Array]) -> dict[str, Array]:
        layers = {kind: jnp.asarray(list(config.layer_parameters[kind].layers())) for kind in bits}
        return {kind: value[layers[kind]] for kind, value in bits.items()}

    def attending(bits: Array) -> Array:
        mixed = config.mixed_layers
        return bits if mixed is None else bits[jnp.asarray(mixed.attending, int)]

    return dataclasses.replace(
        footprint,
        draft_weight_bits=present(footprint.draft_weight_bits),
        target_weight_bits=present(footprint.target_weight_bits),
        draft_kv_bits=attending(footprint.draft_kv_bits),
        target_kv_bits=attending(footprint.target_kv_bits),
    )


def _is_large(config: DecoderConfig, windows: int, queries: int) -> bool:
    """Whether the backward pass had better compute each layer again than keep what it computed.

    What is kept is a few times what a layer's matrices put out, the softmax of the attention, and every soft matrix.
    """
    outputs = 4 * config.hidden_size + 4 * config.intermediate_size + 4 * config.num_heads * queries
    kept = outputs * windows * queries * config.num_layers + config.num_parameters()
    return 4 * kept > _KEPT_BYTES


def price(pricing: Case, measured: DraftMeasurement, temperature: Float[Array, ""] | float = 0.0) -> SpeculationResult:
    """Speedups at every draft length from 0 (no speculation) on."""
    case = dataclasses.replace(
        pricing,
        footprint=priced_footprint(measured.footprint, pricing.architecture),
        draft=priced_draft(pricing, measured),
    )
    acceptance = Acceptance(conditional=conditional_acceptance(measured.survival))
    return priced_chains(case, acceptance, temperature=temperature).result


def mean_log_speedup(result: SpeculationResult, logits: Float[Array, " gamma"]) -> Float[Array, ""]:
    """Mean log speedup over 16-bit decoding, draft lengths 1, 2, ... weighted by softmax(logits)."""
    never = jnp.full(1, -jnp.inf, logits.dtype)  # not to speculate is no knob, but an answer given at the end
    return expected_log_speedup(result, jnp.concatenate([never, logits]))
