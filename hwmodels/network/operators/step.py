"""All operators of one forward pass over new tokens."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from hwmodels.network.architecture import (
    EXPERT_MATRICES,
    KINDS,
    Architecture,
    attention_layers,
    cached_rows,
    kv_elements_per_token,
    parameters,
    state_bytes,
)
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from hwmodels.network.operators.activations import activation_bytes, norm_flops
from hwmodels.network.operators.attention import attention_work
from hwmodels.network.operators.blocks_in_part import blocks_in_part
from hwmodels.network.operators.expert_sharing import ExpertSharing, busiest_experts, busiest_load
from hwmodels.network.operators.experts import ExpertReads, touched_experts
from hwmodels.network.operators.linear_attention import linear_attention_work
from hwmodels.network.operators.shapes import launches_of, one_for_none, product_shapes
from hwmodels.network.operators.weights import coded_tensors, weights_read
from hwmodels.network.operators.work import MATRIX_OPERATORS, MatrixShapes, OperatorWork, StoredBytes, over_operators
from hwmodels.network.routing import EVERY_EXPERT, UNIFORM, Routing
from hwmodels.numerics.folds import settled
from hwmodels.numerics.scalars import Leaf, Number, as_float, either
from hwmodels.numerics.units import BITS_PER_BYTE


def step_operators(
    architecture: Architecture,
    *,
    tokens: Number,
    batch: Number,
    context_tokens: Number,
    shared_tokens: Number = 0.0,
    weight_bits: Mapping[str, Number],
    kv_bits: Number,
    logit_tokens: Number | None = None,
    visible_new_tokens: Number | None = None,
    stored_weight_bits: Mapping[str, Number] | None = None,
    stored_kv_bits: Number | None = None,
    copy_weight_bits: Mapping[str, Number] | None = None,
    encoded_kv_share: Number | None = None,
    pool_experts: Number = EVERY_EXPERT,
    speculating: Number = 0.0,
    drafting: Number = 0.0,
    ahead_bytes: Number = 0.0,
    beside_bytes: Number = 0.0,
    after_other: Number = 1.0,
    attention_share: Number = 1.0,
    feed_forward_share: Number = 1.0,
    visible_share: Number = 1.0,
    routing: Routing = UNIFORM,
    expert_sharing: ExpertSharing | None = None,
) -> OperatorWork:
    """FLOPs and bytes of one forward pass over `tokens` new tokens per sequence.

    Args:
        architecture: leaves "*b".
        tokens: "*b", >= 1; new tokens per sequence (1 decoding or drafting, x verification, the prompt in prefill).
        batch: "*b", >= 1; sequences.
        context_tokens: "*b", >= 0; tokens already cached per sequence.
        shared_tokens: "*b", in [0, context_tokens]; of these, that all sequences have in common: held and read once.
        weight_bits: kind -> "*b", over all of `KINDS`; bits read per stored weight. A tied head is read at the width of
            "lm_head", the rows of the embedding at that of "embed".
        kv_bits: "*b", bits read per cached element.
        logit_tokens: "*b", tokens per sequence that pass the last norm and the head; all new ones unless given.
        visible_new_tokens: "*b", in [1, tokens]; new tokens that a new token sees on average, itself included: in a tree its
            mean depth, the root counting 1. A chain's, (tokens + 1) / 2, unless given.
        stored_weight_bits, stored_kv_bits: what is held, as `weight_bits` and `kv_bits` unless given: a draft reads a part of
            the target.
        pool_experts: "*b", > 0; the most popular experts of a layer, among which alone tokens choose; all unless given.
        encoded_kv_share: "*b", in [0, 1]; of the new keys and values, that are stored coded. Unless given: all where a cached
            element is read in fewer than 16 bits, else none.
        copy_weight_bits: of what is held, bits of copies that only a draft reads; none unless given.
        speculating, drafting: "*b", 1 for steps of a draft-verify cycle, for draft steps; a placement may differ by it, and
            linear attention keeps what it needs to forget rejected tokens.
        ahead_bytes, beside_bytes: "*b", of another network in the same memories; see `ExpertReads`.
        after_other: "*b", 1 where the step follows one of that network, 0 where it follows its like.
        attention_share, feed_forward_share: "*b", in [0, 1]; of the layers' blocks that the step runs; all unless given.
        visible_share: "*b", in (0, 1]; of the cached tokens that the step reads; all unless given.
        routing: which experts tokens choose; not batched with the rest.
        expert_sharing: how routed experts are spread over devices, of which the busiest one's work is returned; all on this
            one unless given.
    Returns:
        Sizes and counts are real numbers, nothing is rounded. Gradient: kinks where windows begin to cut and where latent
        attention changes its form.
    Raises:
        ValueError: a mapping of widths lacks a kind or names one that does not exist.
    """
    a = jax.tree.map(as_float, architecture)
    tokens, batch, context = as_float(tokens), as_float(batch), as_float(context_tokens)
    kv_bits_read, shared = as_float(kv_bits), as_float(shared_tokens)
    bits = _widths(weight_bits, "weight_bits")
    held_bits = bits if stored_weight_bits is None else _widths(stored_weight_bits, "stored_weight_bits")
    held_kv_bits = kv_bits_read if stored_kv_bits is None else as_float(stored_kv_bits)
    rows, pool = batch * tokens, as_float(pool_experts)
    seen, seen_shared = (as_float(visible_share) * count for count in (context, shared))
    logit_rows = rows if logit_tokens is None else batch * as_float(logit_tokens)

    shared_by = ExpertSharing(1.0, 1.0) if expert_sharing is None else expert_sharing
    sequences = batch if expert_sharing is None else batch * as_float(shared_by.replicas)
    everywhere = touched = touched_experts(
        a.num_experts, a.experts_per_token, tokens, sequences=sequences, routing=routing, pool_experts=pool
    )
    # Choices of experts on this device, per row of all sequences and per row of its own.
    loaded = choices = a.experts_per_token
    if expert_sharing is not None:
        devices, replicas = as_float(shared_by.devices), as_float(shared_by.replicas)
        touched = busiest_experts(everywhere, a.num_experts, devices)
        step = {"sequences": sequences, "routing": routing, "pool_experts": pool}
        loaded = loaded / devices * busiest_load(a.num_experts, loaded, tokens, devices=devices, **step)
        choices = loaded * replicas
    # Rows that each touched expert multiplies.
    expert_rows = settled((tokens * sequences) * loaded / one_for_none(touched))
    read = weights_read(a, rows, touched)
    elements = {name: sum(kinds.values()) for name, kinds in read.items()}
    weight_bytes = {
        name: sum(count * bits[kind] for kind, count in kinds.items()) / BITS_PER_BYTE for name, kinds in read.items()
    }
    # An element of 16 bits is stored as it is, any other passes a decoder where the device has one.
    coded = {
        name: sum(either(bits[kind] < UNCOMPRESSED_BITS, count, 0.0) for kind, count in kinds.items())
        for name, kinds in read.items()
    }
    kv_read = kv_elements_per_token(a) * cached_rows(a, seen, batch=batch, shared_tokens=seen_shared)
    coded["attention"] = either(kv_bits_read < UNCOMPRESSED_BITS, kv_read, 0.0)
    coded_bits = {
        name: sum(either(bits[kind] < UNCOMPRESSED_BITS, count * bits[kind], 0.0) for kind, count in kinds.items())
        for name, kinds in read.items()
    } | {"attention": coded["attention"] * kv_bits_read}
    encoded = (
        either(kv_bits_read < UNCOMPRESSED_BITS, 1.0, 0.0) if encoded_kv_share is None else as_float(encoded_kv_share)
    )
    attention = attention_work(
        a,
        tokens=tokens,
        batch=batch,
        context_tokens=seen,
        visible_new_tokens=(tokens + 1.0) / 2.0 if visible_new_tokens is None else as_float(visible_new_tokens),
        kv_bits=kv_bits_read,
        shared_tokens=seen_shared,
    )
    speculating, drafting = as_float(speculating), as_float(drafting)
    linear = linear_attention_work(a, tokens=tokens, batch=batch, verifying=speculating * (1.0 - drafting))
    launches = launches_of(a)
    tensors = coded_tensors(read, bits, launches, touched)
    # Keys and values of each layer and sequence, where any are cached.
    cached = (kv_bits_read < UNCOMPRESSED_BITS) & (kv_read > 0)
    tensors["attention"] = either(cached, 2.0 * attention_layers(a) * batch, 0.0)
    expert_products = {"expert_rows": expert_rows, "touched": touched}
    shapes = product_shapes(a, attention, elements, launches, rows=rows, logit_rows=logit_rows, **expert_products)
    weight_bits_read = {
        name: either(
            elements[name] > 0, weight_bytes[name] * BITS_PER_BYTE / one_for_none(elements[name]), UNCOMPRESSED_BITS
        )
        for name in MATRIX_OPERATORS
    }
    m, k, n, products = (over_operators({name: s[i] for name, s in shapes.items()}, 1.0 - (i == 3)) for i in range(4))
    flops = {name: 2.0 * s[0] * s[1] * s[2] * s[3] * launches[name] for name, s in shapes.items()} | {
        "attention": attention.flops,
        "linear_attention": linear.flops,
        "norm": norm_flops(a, rows=rows, logit_rows=logit_rows),
    }
    stored = parameters(a)
    held = {kind: stored[kind] * held_bits[kind] / BITS_PER_BYTE for kind in KINDS}
    held_rows = cached_rows(a, context + tokens, batch=batch, shared_tokens=shared)
    kv_elements = kv_elements_per_token(a) * held_rows
    experts = sum(held[kind] for kind in EXPERT_MATRICES)
    experts = experts if expert_sharing is None else experts / as_float(shared_by.devices)
    whole = OperatorWork(
        flops=over_operators(flops),
        weight_bytes=over_operators(weight_bytes),
        kv_bytes=over_operators({"attention": attention.kv_bytes, "linear_attention": linear.state_bytes}),
        activation_bytes=over_operators(activation_bytes(a, rows=rows, logit_rows=logit_rows, choices_per_row=choices)),
        launches=over_operators(launches),
        shapes=MatrixShapes(m, k, n, products, over_operators(weight_bits_read, UNCOMPRESSED_BITS)),
        stored=StoredBytes(
            kv=jnp.asarray(kv_elements * held_kv_bits / BITS_PER_BYTE + state_bytes(a) * batch),
            dense=jnp.asarray(sum(held[kind] for kind in KINDS if kind not in EXPERT_MATRICES)),
            experts=jnp.asarray(experts),
            by_the_row=jnp.asarray((1.0 - a.tied_embeddings) * held["embed"]),
        ),
        coded_elements=over_operators(coded),
        coded_bits=over_operators(coded_bits),
        coded_tensors=over_operators(tensors),
        new_tokens=jnp.asarray(tokens),
        kv_elements=jnp.asarray(kv_read),
        kv_bits=jnp.asarray(kv_bits_read),
        encoded_kv=jnp.asarray(kv_elements_per_token(a) * rows * encoded),
        attention=attention.reads,
        experts=ExpertReads(
            num_experts=a.num_experts,
            per_token=a.experts_per_token,
            tokens=tokens,
            sequences=batch,
            pool=either(pool < a.num_experts, pool, a.num_experts),
            touched=touched,
            read_bits=_mean_bits(bits, a),
            stored_bits=_mean_bits(held_bits, a),
            copy_bits=0.0 if copy_weight_bits is None else _mean_bits(_widths(copy_weight_bits, "copy_weight_bits"), a),
            speculating=speculating,
            drafting=drafting,
            ahead_bytes=as_float(ahead_bytes),
            beside_bytes=as_float(beside_bytes),
            after_other=as_float(after_other),
            routing=routing,
        ),
    )
    return blocks_in_part(whole, as_float(attention_share), as_float(feed_forward_share))


def _mean_bits(bits: Mapping[str, Leaf], a: Architecture) -> Leaf:
    """Bits of a weight of a routed expert, on average over its matrices, which are of one size."""
    return (a.gated_ffn * bits["expert_gate"] + bits["expert_up"] + bits["expert_down"]) / (2.0 + a.gated_ffn)


def _widths(weight_bits: Mapping[str, Number], name: str) -> dict[str, Leaf]:
    missing, unknown = [k for k in KINDS if k not in weight_bits], sorted(set(weight_bits) - set(KINDS))
    if missing or unknown:
        raise ValueError(
            f"{name} lacks kinds {missing} and has unknown ones {unknown}; "
            "it must hold each of hwmodels.KINDS: start from uniform_weight_bits(16)"
        )
    return {kind: as_float(value) for kind, value in weight_bits.items()}
