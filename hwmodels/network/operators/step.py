"""All operators of one forward pass over new tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.network.architecture import (
    EXPERT_MATRICES,
    KINDS,
    Architecture,
    attention_layers,
    attention_shape,
    cached_rows,
    kv_elements_per_token,
    linear_shape,
    parameters,
    state_bytes,
)
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from hwmodels.network.operators.attention import AttentionWork, attention_work
from hwmodels.network.operators.expert_sharing import ExpertSharing, busiest_experts, busiest_load
from hwmodels.network.operators.experts import ExpertReads, touched_experts
from hwmodels.network.operators.work import (
    EXPERT_OPERATORS,
    MATRIX_OPERATORS,
    OPERATORS,
    MatrixShapes,
    OperatorWork,
    StoredBytes,
    over_operators,
)
from hwmodels.network.routing import EVERY_EXPERT, UNIFORM, Routing
from hwmodels.numerics.axes import same_rank
from hwmodels.numerics.folds import settled
from hwmodels.numerics.scalars import Leaf, Number, as_float, either
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = [
    "LinearAttentionWork",
    "blocks_in_part",
    "launches_of",
    "linear_attention_work",
    "one_for_none",
    "product_shapes",
    "widths_of_kinds",
]


def launches_of(a: Architecture) -> dict[str, Leaf]:
    """Operator -> how often it starts in a step, "*b"; leaves of the architecture "*b"."""
    dense = a.num_layers - a.num_moe_layers
    shared = either(a.shared_intermediate_size > 0, a.num_moe_layers, 0.0)
    return (
        dict.fromkeys(("qkv", "o"), a.num_layers)
        | {"attention": attention_layers(a), "linear_attention": a.num_linear_layers}
        | {"embed": 1.0, "norm": a.norms_per_layer * a.num_layers + 1.0, "lm_head": 1.0}
        | {"latent": either(a.kv_lora_rank > 0, attention_layers(a), 0.0)}
        | dict.fromkeys(("gate_up", "down"), dense)
        | dict.fromkeys(("router", "expert_gate_up", "expert_down"), a.num_moe_layers)
        | dict.fromkeys(("shared_gate_up", "shared_down"), shared)
    )


def product_shapes(
    a: Architecture,
    attention: AttentionWork,
    elements: Mapping[str, Leaf],
    launches: Mapping[str, Leaf],
    *,
    rows: Leaf,
    logit_rows: Leaf,
    expert_rows: Leaf,
    touched: Leaf,
) -> dict[str, tuple[Leaf, Leaf, Leaf, Leaf]]:
    """Operator -> (m, k, n, products), "*b"; m, k and n are 1 where an operator is absent.

    Args:
        a: leaves "*b".
        attention: of the same step.
        elements: operator -> weights that it reads in the step, "*b".
        launches: of `launches_of`.
        rows, logit_rows, expert_rows: "*b", tokens that matrices, the head and each chosen expert multiply.
        touched: "*b", experts of a layer that are chosen.
    """
    inner = {
        "qkv": a.hidden_size,
        "latent": a.kv_lora_rank,
        "o": _mixed_output(a),
        "gate_up": a.hidden_size,
        "down": a.intermediate_size,
        "router": a.hidden_size,
        "expert_gate_up": a.hidden_size,
        "expert_down": a.expert_intermediate_size,
        "shared_gate_up": a.hidden_size,
        "shared_down": a.shared_intermediate_size,
        "lm_head": a.hidden_size,
    }
    outer_rows: dict[str, Leaf] = dict.fromkeys(inner, rows) | {
        "expert_gate_up": expert_rows,
        "expert_down": expert_rows,
        "lm_head": logit_rows,
    }
    shapes: dict[str, tuple[Leaf, Leaf, Leaf, Leaf]] = {}
    for name, k in inner.items():
        products = touched if name.startswith("expert") else 1.0
        # All weights of the operator over its launches, products and rows of weights: the columns of one product.
        columns = settled(elements[name] / (one_for_none(launches[name]) * one_for_none(products) * one_for_none(k)))
        present = (launches[name] > 0) & (columns > 0)
        shapes[name] = (
            either(present, outer_rows[name], 1.0),
            either(present, k, 1.0),
            either(present, columns, 1.0),
            either(present, products, 0.0),
        )
    shapes["attention"] = (
        attention.queries_per_head,
        attention.depth,
        attention.visible_tokens,
        attention.products,
    )
    return shapes


def one_for_none(value: Leaf) -> Leaf:
    """1 instead of 0, as a divisor of what is 0 as well."""
    return either(value > 0, value, 1.0)


def _mixed_output(a: Architecture) -> Leaf:
    """Elements that enter the projection "o", on average over layers of both kinds."""
    linear = a.num_linear_layers / a.num_layers
    return attention_shape(a).output_size * (1.0 - linear) + linear_shape(a).values * linear


def weights_read(architecture: Architecture, rows: Leaf, touched: Leaf) -> dict[str, dict[str, Leaf]]:
    """Operator -> kind -> weights, "*b", that a step reads.

    Args:
        architecture: leaves "*b".
        rows: "*b", tokens of all sequences together.
        touched: "*b", routed experts of a layer that at least one of them chooses.
    """
    a = architecture
    stored, shape = parameters(a), attention_shape(a)
    layers = attention_layers(a)
    second_query = layers * a.q_lora_rank * shape.query_size
    second_keys = layers * a.kv_lora_rank * a.num_heads * a.head_dim
    linear_values = a.num_linear_layers * a.hidden_size * linear_shape(a).values
    second_values = either(a.kv_lora_rank > 0, stored["v"] - linear_values, 0.0)
    touched_share = touched / either(a.num_experts > 0, a.num_experts, 1.0)
    shared_down = stored["shared"] / (2.0 + a.gated_ffn)
    return {
        "embed": {"embed": rows * a.hidden_size * either(a.learned_positions > 0, 2.0, 1.0)},
        "qkv": {
            "q": stored["q"] - second_query,
            "k": stored["k"] - second_keys,
            "v": stored["v"] - second_values,
        },
        "latent": {"q": second_query, "k": second_keys, "v": second_values},
        "o": {"o": stored["o"]},
        "gate_up": {"gate": stored["gate"], "up": stored["up"]},
        "down": {"down": stored["down"]},
        "router": {"router": stored["router"]},
        "expert_gate_up": {kind: touched_share * stored[kind] for kind in ("expert_gate", "expert_up")},
        "expert_down": {"expert_down": touched_share * stored["expert_down"]},
        "shared_gate_up": {"shared": stored["shared"] - shared_down},
        "shared_down": {"shared": shared_down},
        "norm": {"norm": stored["norm"]},
        "lm_head": {"lm_head": a.vocab_size * a.hidden_size},
    }


def coded_tensors(
    read: Mapping[str, Mapping[str, Leaf]], bits: Mapping[str, Leaf], launches: Mapping[str, Leaf], touched: Leaf
) -> dict[str, Leaf]:
    """Operator -> tensors, "*b", that are read in fewer than 16 bits: one of each kind and launch, or of each touched expert.

    Rows of an embedding are none: nothing is read to the end of its tensor.

    Args:
        read: of `weights_read`.
        bits: kind -> "*b".
        launches: operator -> "*b".
        touched: "*b", routed experts of a layer.
    """
    return {
        name: launches[name]
        * (touched if name in EXPERT_OPERATORS else 1.0)
        * sum(either((bits[kind] < UNCOMPRESSED_BITS) & (count > 0), 1.0, 0.0) for kind, count in kinds.items())
        for name, kinds in read.items()
        if name != "embed"
    }


ACTIVATION_BYTES = UNCOMPRESSED_BITS / BITS_PER_BYTE

#: Square, accumulate, multiply by the inverse root, multiply by the scale.
NORM_FLOPS_PER_ELEMENT = 4.0


def activation_bytes(
    architecture: Architecture, *, rows: Leaf, logit_rows: Leaf, choices_per_row: Leaf
) -> dict[str, Leaf]:
    """Operator -> bytes, "*b", of a step over `rows` tokens of all sequences together, `logit_rows` of them with logits.

    `choices_per_row`: "*b", of routed experts that are computed here.
    """
    a, shape, linear = architecture, attention_shape(architecture), linear_shape(architecture)
    latent = a.kv_lora_rank > 0
    hidden, gate = a.hidden_size, a.attention_gate * shape.output_size
    first_query = either(a.q_lora_rank > 0, a.q_lora_rank, shape.query_size)
    layers, cached, linear_layers = (rows * n for n in (a.num_layers, attention_layers(a), a.num_linear_layers))
    projected = linear.convolved + linear.values + 2.0 * a.linear_value_heads
    dense, moe = rows * (a.num_layers - a.num_moe_layers), rows * a.num_moe_layers
    shared, choices = either(a.shared_intermediate_size > 0, moe, 0.0), moe * choices_per_row
    elements = {
        "embed": rows * hidden,
        "qkv": cached * (hidden + first_query + gate) + linear_layers * (hidden + projected),
        "latent": either(latent, cached * (a.q_lora_rank + shape.query_size), 0.0),
        "attention": cached * (shape.query_size + gate + shape.output_size),
        "linear_attention": linear_layers * (projected + linear.values),
        "o": cached * shape.output_size + linear_layers * linear.values + 2.0 * hidden * layers,
        "gate_up": dense * (hidden + a.intermediate_size),
        "down": dense * (a.intermediate_size + 2.0 * hidden),
        "router": moe * (hidden + a.num_experts),
        "expert_gate_up": choices * (hidden + a.expert_intermediate_size),
        "expert_down": choices * (a.expert_intermediate_size + 2.0 * hidden) + 2.0 * moe * hidden,
        "shared_gate_up": shared * (hidden + a.shared_intermediate_size),
        "shared_down": shared * (a.shared_intermediate_size + 2.0 * hidden),
        "norm": 2.0 * hidden * (a.norms_per_layer * layers + logit_rows),
        "lm_head": logit_rows * (hidden + a.vocab_size),
    }
    return {name: count * ACTIVATION_BYTES for name, count in elements.items()}


def norm_flops(architecture: Architecture, *, rows: Leaf, logit_rows: Leaf) -> Leaf:
    """FLOPs of all norms of a step, "*b"."""
    a = architecture
    heads = a.qk_norm * (a.num_heads + a.num_kv_heads) * a.head_dim
    low_rank = either(a.kv_lora_rank > 0, a.kv_lora_rank + a.q_lora_rank, 0.0)
    per_row = a.num_layers * a.norms_per_layer * a.hidden_size + attention_layers(a) * (heads + low_rank)
    per_row += a.num_linear_layers * linear_shape(a).values
    return NORM_FLOPS_PER_ELEMENT * (rows * per_row + logit_rows * a.hidden_size)


#: Per element of a matrix and token: products with a key, with a query and of value and key, 2 each; and the decay.
_FLOPS_PER_ELEMENT = 7.0


@flax.struct.dataclass
class LinearAttentionWork:
    """Linear attention of all layers of a step that have it; leaves "*b"."""

    flops: Leaf
    state_bytes: Leaf  # read and written


def linear_attention_work(
    architecture: Architecture, *, tokens: Leaf, batch: Leaf, verifying: Leaf
) -> LinearAttentionWork:
    """Work of `tokens` new tokens in each of `batch` sequences.

    Args:
        architecture: leaves "*b".
        tokens, batch: "*b", >= 1.
        verifying: "*b", 1 where tokens may be rejected, else 0.
    """
    a, shape = architecture, linear_shape(architecture)
    written = 1.0 + verifying * either(tokens > 1, tokens - 1.0, 0.0)
    multiplied = _FLOPS_PER_ELEMENT * shape.state + 2.0 * a.linear_conv_tokens * shape.convolved
    return LinearAttentionWork(
        flops=a.num_linear_layers * multiplied * tokens * batch,
        state_bytes=state_bytes(a) * batch * (1.0 + written),
    )


_ATTENTION = ("qkv", "latent", "attention", "linear_attention", "o")

_OUTSIDE_LAYERS = ("embed", "lm_head")


def blocks_in_part(work: OperatorWork, attention_share: Leaf, feed_forward_share: Leaf) -> OperatorWork:
    """The work of a step that runs such shares of all attention blocks and of all feed-forward networks.

    What a block executes is unchanged, so that shapes of products stay; how often operators start and what they move falls.
    The last norm counts with those of the layers. Nothing changes in what is held.

    Args:
        attention_share, feed_forward_share: "*b", in [0, 1].
    Gradient: right by both shares, which enter linearly.
    """
    both = (attention_share + feed_forward_share) / 2.0
    share = over_operators(
        {
            name: 1.0 if name in _OUTSIDE_LAYERS else attention_share if name in _ATTENTION else feed_forward_share
            for name in OPERATORS
        }
        | {"norm": both}
    )

    def less(totals: Float[Array, "... operator"] | None) -> Float[Array, "... operator"] | None:
        return None if totals is None else _scaled(totals, share)

    moved = ("weight_bytes", "kv_bytes", "activation_bytes")
    scaled = ("flops", *moved, "launches", "coded_elements", "coded_bits", "coded_tensors")
    found = {name: less(getattr(work, name)) for name in scaled}
    read, written = (
        jax.tree.map(lambda count: _scaled(count, attention_share), count)
        for count in (work.kv_elements, work.encoded_kv)
    )
    return dataclasses.replace(work, **found, kv_elements=read, encoded_kv=written)


def _scaled(totals: Array, share: Leaf) -> Array:
    totals, share = same_rank(totals, share)
    return totals * share


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
    bits = widths_of_kinds(weight_bits, "weight_bits")
    held_bits = bits if stored_weight_bits is None else widths_of_kinds(stored_weight_bits, "stored_weight_bits")
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
            copy_bits=0.0
            if copy_weight_bits is None
            else _mean_bits(widths_of_kinds(copy_weight_bits, "copy_weight_bits"), a),
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


def widths_of_kinds(weight_bits: Mapping[str, Number], name: str) -> dict[str, Leaf]:
    """Bits by kind in the order of `KINDS`; ValueError where one is missing or unknown."""
    missing, unknown = [k for k in KINDS if k not in weight_bits], sorted(set(weight_bits) - set(KINDS))
    if missing or unknown:
        raise ValueError(
            f"{name} lacks kinds {missing} and has unknown ones {unknown}; "
            "it must hold each of hwmodels.KINDS: start from uniform_weight_bits(16)"
        )
    return {kind: as_float(weight_bits[kind]) for kind in KINDS}
