"""All operators of one forward pass over new tokens.

Attention of a step: how many tokens a new token sees, how much is multiplied, what is read of the cache.

The cache of the context is read once per sequence, shared by all its new tokens. New keys and values reach attention on
chip and are written to the cache once, at 16 bits: compression of the cache happens later, at no cost here. Scores stay on
chip. Latent attention works on the cached latents, or on keys and values expanded from them, whichever takes fewer FLOPs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.network.architecture import (
    EXPERT_MATRICES,
    KINDS,
    UNCOMPRESSED_BITS,
    Architecture,
    attention_layers,
    attention_shape,
    cached_rows,
    dense_layers,
    expert_width,
    kv_elements_per_token,
    linear_shape,
    narrowing,
    norms,
    parameters,
    read_share,
    state_bytes,
    window_share,
)
from hwmodels.network.operators.expert_sharing import (
    ExpertReads,
    ExpertSharing,
    busiest_experts,
    busiest_load,
    touched_experts,
)
from hwmodels.network.operators.work import (
    EXPERT_OPERATORS,
    MATRIX_OPERATORS,
    OPERATORS,
    AttentionReads,
    MatrixShapes,
    OperatorWork,
    StoredBytes,
    over_operators,
)
from hwmodels.network.routing import EVERY_EXPERT, UNIFORM, Routing
from hwmodels.numerics.folds import settled
from hwmodels.numerics.scalars import Leaf, Number, as_float, either, same_rank
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = [
    "LinearAttentionWork",
    "launches_of",
    "layer_skipping",
    "linear_attention_work",
    "one_for_none",
    "product_shapes",
    "widths_of_kinds",
]


def launches_of(a: Architecture) -> dict[str, Leaf]:
    """Operator -> how often it starts in a step, "*b"; leaves of the architecture "*b"."""
    dense = dense_layers(a)
    shared = either(a.shared_intermediate_size > 0, a.num_moe_layers, 0.0)
    return (
        dict.fromkeys(("qkv", "o"), a.num_layers)
        | {"attention": attention_layers(a), "linear_attention": a.num_linear_layers}
        | {"embed": 1.0, "norm": norms(a) + 1.0, "lm_head": 1.0}
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
    experts: ExpertLoad,
) -> dict[str, tuple[Leaf, Leaf, Leaf, Leaf]]:
    """Operator -> (m, k, n, products), "*b"; m, k and n are 1 where an operator is absent.

    Args:
        a: leaves "*b".
        attention: of the same step.
        elements: operator -> weights that it reads in the step, "*b".
        launches: of `launches_of`.
        rows, logit_rows: "*b", tokens that matrices and the head multiply.
        experts: of `expert_load`.
    """
    inner = {
        "qkv": a.hidden_size,
        "latent": a.kv_lora_rank,
        "o": _mixed_output(a),
        "gate_up": a.hidden_size,
        "down": a.intermediate_size,
        "router": a.hidden_size,
        "expert_gate_up": expert_width(a),
        "expert_down": a.expert_intermediate_size,
        "shared_gate_up": a.hidden_size,
        "shared_down": a.shared_intermediate_size,
        "lm_head": a.hidden_size,
    }
    outer_rows: dict[str, Leaf] = dict.fromkeys(inner, rows) | {
        "expert_gate_up": experts.rows,
        "expert_down": experts.rows,
        "lm_head": logit_rows,
    }
    shapes: dict[str, tuple[Leaf, Leaf, Leaf, Leaf]] = {}
    for name, k in inner.items():
        products = experts.touched if name.startswith("expert") else 1.0
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
    shared_down = (stored["shared"] - 2.0 * narrowing(a)) / (2.0 + a.gated_ffn) + narrowing(a)
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
    projected = linear.convolved + linear.values + a.linear_rates * a.linear_value_heads
    dense, moe, width = rows * dense_layers(a), rows * a.num_moe_layers, expert_width(a)
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
        "expert_gate_up": choices * (width + a.expert_intermediate_size),
        "expert_down": choices * (a.expert_intermediate_size + 2.0 * width) + 2.0 * moe * hidden,
        "shared_gate_up": shared * (hidden + a.shared_intermediate_size),
        "shared_down": shared * (a.shared_intermediate_size + 2.0 * hidden),
        "norm": 2.0 * hidden * (norms(a) * rows + logit_rows),
        "lm_head": logit_rows * (hidden + a.vocab_size),
    }
    return {name: count * ACTIVATION_BYTES for name, count in elements.items()}


def norm_flops(architecture: Architecture, *, rows: Leaf, logit_rows: Leaf) -> Leaf:
    """FLOPs of all norms of a step, "*b"."""
    a = architecture
    heads = a.qk_norm * (a.num_heads + a.num_kv_heads) * a.head_dim
    low_rank = either(a.kv_lora_rank > 0, a.kv_lora_rank + a.q_lora_rank, 0.0)
    per_row = norms(a) * a.hidden_size + attention_layers(a) * (heads + low_rank)
    # Of the outputs of linear attention; those of convolutions alone are not normed.
    per_row += a.num_linear_layers * either(a.linear_key_dim > 0, linear_shape(a).values, 0.0)
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


def layer_skipping(work: OperatorWork, attention_share: Leaf, feed_forward_share: Leaf) -> OperatorWork:
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
    reduced = {name: less(getattr(work, name)) for name in scaled}
    read, written = (
        jax.tree.map(lambda count: _scaled(count, attention_share), count)
        for count in (work.kv_elements, work.encoded_kv)
    )
    return dataclasses.replace(work, **reduced, kv_elements=read, encoded_kv=written)


def _scaled(totals: Array, share: Leaf) -> Array:
    totals, share = same_rank(totals, share)
    return totals * share


#: Fields of a step that hold bits by kind of weight.
WEIGHT_BITS = ("weight_bits", "stored_weight_bits", "copy_weight_bits")


@flax.struct.dataclass
class StepShape:
    """A step in numbers, leaves "*b", so that steps of all kinds go through one `vmap`. What is None follows from the rest:
    see `complete`.

    Attributes:
        tokens: >= 1; new tokens per sequence (1 decoding or drafting, x verification, the prompt in prefill).
        batch: >= 1; sequences.
        context_tokens: >= 0; tokens already cached per sequence.
        weight_bits: kind -> bits read per stored weight, over all of `KINDS`. A tied head is read at the width of "lm_head",
            the rows of the embedding at that of "embed".
        kv_bits: bits read per cached element.
        shared_tokens: in [0, context_tokens]; of these, that all sequences have in common: held and read once.
        logit_tokens: per sequence, that pass the last norm and the head; None: all new ones.
        visible_new_tokens: in [1, tokens]; new tokens that a new token sees on average, itself included: in a tree its mean
            depth, the root counting 1. None: a chain's, (tokens + 1) / 2.
        stored_weight_bits, stored_kv_bits: what is held, of which a draft reads a part; None: what is read.
        copy_weight_bits: of what is held, bits of copies that only a draft reads; None: no copies.
        encoded_kv_share: in [0, 1]; of the new keys and values, that are stored coded. None: all where a cached element is
            read in fewer than 16 bits, else none.
        pool_experts: > 0; the most popular experts of a layer, among which alone tokens choose.
        speculating, drafting: 1 for steps of a draft-verify cycle, for draft steps; a placement may differ by it, and
            linear attention keeps what it needs to forget rejected tokens.
        bytes_placed_before, bytes_before_experts: of another network in the same memories; see `ExpertReads`.
        follows_other_model: 1 where the step follows one of that network, 0 where it follows its like.
        attention_share, feed_forward_share: in [0, 1]; of the layers' blocks that the step runs.
        visible_share: in (0, 1]; of the cached tokens that the step reads.
        expert_sharing: how routed experts are spread over devices, of which the busiest one's work is counted; None: all on
            this one.
    """

    tokens: Leaf
    batch: Leaf
    context_tokens: Leaf
    weight_bits: Mapping[str, Leaf]
    kv_bits: Leaf
    shared_tokens: Leaf = 0.0
    logit_tokens: Leaf = None
    visible_new_tokens: Leaf = None
    stored_weight_bits: Any = None
    stored_kv_bits: Leaf = None
    copy_weight_bits: Any = None
    encoded_kv_share: Leaf = None
    pool_experts: Leaf = EVERY_EXPERT
    speculating: Leaf = 0.0
    drafting: Leaf = 0.0
    bytes_placed_before: Leaf = 0.0
    bytes_before_experts: Leaf = 0.0
    follows_other_model: Leaf = 1.0
    attention_share: Leaf = 1.0
    feed_forward_share: Leaf = 1.0
    visible_share: Leaf = 1.0
    expert_sharing: ExpertSharing | None = None

    @property
    def complete(self) -> StepShape:
        """The step with numbers for all that is None, but for `expert_sharing`."""
        derived: dict[str, Callable[[], Any]] = {
            "logit_tokens": lambda: self.tokens,
            "visible_new_tokens": lambda: (as_float(self.tokens) + 1.0) / 2.0,
            "stored_weight_bits": lambda: self.weight_bits,
            "stored_kv_bits": lambda: self.kv_bits,
            "copy_weight_bits": lambda: dict.fromkeys(self.weight_bits, 0.0),
            "encoded_kv_share": lambda: either(as_float(self.kv_bits) < UNCOMPRESSED_BITS, 1.0, 0.0),
        }
        return dataclasses.replace(
            self, **{name: value() for name, value in derived.items() if getattr(self, name) is None}
        )


def step_operators(architecture: Architecture, step: StepShape, routing: Routing = UNIFORM) -> OperatorWork:
    """FLOPs and bytes of one forward pass over the step's new tokens.

    Args:
        architecture, step: leaves "*b".
        routing: which experts tokens choose; not batched with the rest.
    Returns:
        Sizes and counts are real numbers, nothing is rounded. Gradient: kinks where windows begin to cut and where latent
        attention changes its form.
    Raises:
        ValueError: a mapping of widths lacks a kind or names one that does not exist.
    """
    a, step = jax.tree.map(as_float, (architecture, step.complete))
    step = dataclasses.replace(step, **{name: widths_of_kinds(getattr(step, name), name) for name in WEIGHT_BITS})
    bits = step.weight_bits
    batch, rows = step.batch, step.batch * step.tokens
    logit_rows = batch * step.logit_tokens
    experts = expert_load(a, step, routing)
    launches, read = launches_of(a), weights_read(a, rows, experts.touched)
    weights = read_weights(read, bits)
    attention = attention_work(a, step)
    verifying = step.speculating * (1.0 - step.drafting)
    linear = linear_attention_work(a, tokens=step.tokens, batch=batch, verifying=verifying)
    seen, seen_shared = (step.visible_share * count for count in (step.context_tokens, step.shared_tokens))
    kv_rows = cached_rows(a, seen, batch=batch, shared_tokens=seen_shared)
    kv_read = kv_elements_per_token(a) * kv_rows * read_share(a, kv_rows, rows)
    # Keys and values of each layer and sequence, where any are cached.
    kv_coded = step.kv_bits < UNCOMPRESSED_BITS
    kv_tensors = either(kv_coded & (kv_read > 0), 2.0 * attention_layers(a) * batch, 0.0)
    coded_kv = either(kv_coded, kv_read, 0.0)
    shapes = product_shapes(a, attention, weights.elements, launches, rows=rows, logit_rows=logit_rows, experts=experts)
    flops = {name: 2.0 * m * k * n * products * launches[name] for name, (m, k, n, products) in shapes.items()} | {
        "attention": attention.flops,
        "linear_attention": linear.flops,
        "norm": norm_flops(a, rows=rows, logit_rows=logit_rows),
    }
    m, k, n, products = (over_operators({name: s[i] for name, s in shapes.items()}, 1.0 - (i == 3)) for i in range(4))
    activations = activation_bytes(a, rows=rows, logit_rows=logit_rows, choices_per_row=experts.choices)
    whole = OperatorWork(
        flops=over_operators(flops),
        weight_bytes=over_operators(weights.bytes),
        kv_bytes=over_operators({"attention": attention.kv_bytes, "linear_attention": linear.state_bytes}),
        activation_bytes=over_operators(activations),
        launches=over_operators(launches),
        shapes=MatrixShapes(m, k, n, products, over_operators(weights.mean_bits, UNCOMPRESSED_BITS)),
        stored=stored_bytes(a, step),
        coded_elements=over_operators(weights.coded | {"attention": coded_kv}),
        coded_bits=over_operators(weights.coded_bits | {"attention": coded_kv * step.kv_bits}),
        coded_tensors=over_operators(coded_tensors(read, bits, launches, experts.touched) | {"attention": kv_tensors}),
        new_tokens=jnp.asarray(step.tokens),
        uncut=jnp.asarray(either(a.kv_lora_rank > 0, 0.0, verifying * jnp.clip(step.tokens - 1.0, 0.0, 1.0))),
        kv_elements=jnp.asarray(kv_read),
        kv_bits=jnp.asarray(step.kv_bits),
        encoded_kv=jnp.asarray(kv_elements_per_token(a) * rows * step.encoded_kv_share),
        attention=attention.reads,
        experts=expert_reads(a, step, routing, experts.touched),
    )
    return layer_skipping(whole, step.attention_share, step.feed_forward_share)


@flax.struct.dataclass
class ExpertLoad:
    """What a step asks of a layer's routed experts on one device; leaves "*b"."""

    touched: Leaf  # different ones that it reads
    rows: Leaf  # tokens that each of them multiplies
    choices: Leaf  # of experts on this device, per row of its own sequences


def expert_load(a: Architecture, step: StepShape, routing: Routing) -> ExpertLoad:
    """Of the device with all experts, or of the busiest one that shares them. Arguments: `step_operators`, complete."""
    sharing = step.expert_sharing
    sequences = step.batch if sharing is None else step.batch * sharing.replicas
    choices = {"sequences": sequences, "routing": routing, "pool_experts": step.pool_experts}
    touched = touched_experts(a.num_experts, a.experts_per_token, step.tokens, **choices)
    loaded = a.experts_per_token  # per row of all sequences
    if sharing is not None:
        touched = busiest_experts(touched, a.num_experts, sharing.devices)
        busiest = busiest_load(a.num_experts, loaded, step.tokens, devices=sharing.devices, **choices)
        loaded = loaded / sharing.devices * busiest
    return ExpertLoad(
        touched=touched,
        rows=settled((step.tokens * sequences) * loaded / one_for_none(touched)),
        choices=loaded if sharing is None else loaded * sharing.replicas,
    )


def expert_reads(a: Architecture, step: StepShape, routing: Routing, touched: Leaf) -> ExpertReads:
    """What a cache of experts must know of the step. Arguments: `step_operators`, complete; `touched` of `expert_load`."""
    pool = step.pool_experts
    same = ("speculating", "drafting", "bytes_placed_before", "bytes_before_experts", "follows_other_model")
    return ExpertReads(
        num_experts=a.num_experts,
        per_token=a.experts_per_token,
        tokens=step.tokens,
        sequences=step.batch,
        pool=either(pool < a.num_experts, pool, a.num_experts),
        touched=touched,
        read_bits=_mean_bits(step.weight_bits, a),
        stored_bits=_mean_bits(step.stored_weight_bits, a),
        copy_bits=_mean_bits(step.copy_weight_bits, a),
        routing=routing,
        **{name: getattr(step, name) for name in same},
    )


@flax.struct.dataclass
class WeightReads:
    """Weights that a step reads, by operator; leaves "*b"."""

    elements: dict[str, Leaf]
    bytes: dict[str, Leaf]
    coded: dict[str, Leaf]  # elements in fewer than 16 bits: any other is stored as it is and passes no decoder
    coded_bits: dict[str, Leaf]  # that these are stored in

    @property
    def mean_bits(self) -> dict[str, Leaf]:
        """Operator -> bits of an element, of those that multiply by stored matrices."""
        return {
            name: either(
                self.elements[name] > 0,
                self.bytes[name] * BITS_PER_BYTE / one_for_none(self.elements[name]),
                UNCOMPRESSED_BITS,
            )
            for name in MATRIX_OPERATORS
        }


def read_weights(read: Mapping[str, Mapping[str, Leaf]], bits: Mapping[str, Leaf]) -> WeightReads:
    """Totals by operator.

    Args:
        read: of `weights_read`.
        bits: kind -> "*b".
    """

    def total(count: Callable[[Leaf, Leaf], Leaf]) -> dict[str, Leaf]:
        return {name: sum(count(some, bits[kind]) for kind, some in kinds.items()) for name, kinds in read.items()}

    return WeightReads(
        elements=total(lambda count, _: count),
        bytes={name: sums / BITS_PER_BYTE for name, sums in total(lambda count, width: count * width).items()},
        coded=total(lambda count, width: either(width < UNCOMPRESSED_BITS, count, 0.0)),
        coded_bits=total(lambda count, width: either(width < UNCOMPRESSED_BITS, count * width, 0.0)),
    )


def stored_bytes(a: Architecture, step: StepShape) -> StoredBytes:
    """What is held on this device once the step's tokens are cached. Arguments: `step_operators`, complete."""
    elements = parameters(a)
    held = {kind: elements[kind] * step.stored_weight_bits[kind] / BITS_PER_BYTE for kind in KINDS}
    rows = cached_rows(a, step.context_tokens + step.tokens, batch=step.batch, shared_tokens=step.shared_tokens)
    kv_bytes = kv_elements_per_token(a) * rows * step.stored_kv_bits / BITS_PER_BYTE
    experts = sum(held[kind] for kind in EXPERT_MATRICES)
    experts = experts if step.expert_sharing is None else experts / step.expert_sharing.devices
    return StoredBytes(
        kv=jnp.asarray(kv_bytes + state_bytes(a) * step.batch),
        dense=jnp.asarray(sum(held[kind] for kind in KINDS if kind not in EXPERT_MATRICES)),
        experts=jnp.asarray(experts),
        by_the_row=jnp.asarray((1.0 - a.tied_embeddings) * held["embed"]),
    )


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


KV_WRITE_BYTES = UNCOMPRESSED_BITS / BITS_PER_BYTE


@flax.struct.dataclass
class AttentionWork:
    """Attention to what is cached, of all layers of a step that have it; leaves "*b"."""

    flops: Leaf
    kv_bytes: Leaf
    visible_tokens: Leaf  # that a new token sees, on average over new tokens and layers
    depth: Leaf  # elements multiplied per query head and visible token, scores and values together
    queries_per_head: Leaf  # rows that share keys of one key-value head, on average over what is visible
    products: Leaf  # products of these rows with keys: sequences x key-value heads, fewer where sequences share keys
    reads: AttentionReads  # what each of these products finds in the cache


def attention_work(architecture: Architecture, step: StepShape) -> AttentionWork:
    """Attention of the step's new tokens in each of its sequences. Arguments: `step_operators`, complete.

    Source: FLOPs of a matrix product, 2 per element and token, of scores and of values.
    """
    a, shape, tokens, batch = architecture, attention_shape(architecture), step.tokens, step.batch
    context_tokens, shared_tokens = (step.visible_share * n for n in (step.context_tokens, step.shared_tokens))
    in_window = window_share(a)
    kept = a.window_tokens + a.sink_tokens
    visible = context_tokens + step.visible_new_tokens
    windowed = visible_in_window(context_tokens, tokens, step.visible_new_tokens, kept)
    multiplied = (1.0 - in_window) * visible + in_window * windowed * a.window_query_ratio
    scored = visible
    visible = (1.0 - in_window) * visible + in_window * windowed
    seldom = a.num_selecting_layers / one_for_none(attention_layers(a)) * jnp.maximum(visible - a.selected_tokens, 0.0)
    visible, multiplied = visible - seldom, multiplied - seldom
    absorbed = shape.score_size + shape.value_size
    # Latents expanded to keys and values: narrower rows, but the context's latents are expanded anew in each step.
    narrow = a.head_dim + a.rope_head_dim + a.v_head_dim
    expansion = a.kv_lora_rank * (a.head_dim + a.v_head_dim) * context_tokens / (tokens * visible)
    expanded = narrow + expansion
    depth = either(a.kv_lora_rank > 0, either(expanded < absorbed, expanded, absorbed), absorbed)
    rows = cached_rows(a, context_tokens, batch=batch, shared_tokens=shared_tokens)
    rows = rows * read_share(a, rows, batch * tokens)
    indexed = a.num_index_layers * a.index_heads * a.index_head_dim * scored
    moved = rows * step.kv_bits / BITS_PER_BYTE + batch * tokens * KV_WRITE_BYTES
    # Queries of all sequences meet the keys that these share in one product. Windows do not change the share here.
    share = either(visible > 0, shared_tokens / either(visible > 0, visible, 1.0), 0.0)
    share = either(share < 1.0, share, 1.0)
    products = shape.kv_heads * (batch * (1.0 - share) + share)
    return AttentionWork(
        flops=2.0 * (attention_layers(a) * a.num_heads * depth * multiplied + indexed) * tokens * batch,
        kv_bytes=kv_elements_per_token(a) * moved,
        visible_tokens=visible,
        depth=depth,
        queries_per_head=tokens * batch * a.num_heads / products,
        products=products,
        reads=AttentionReads(
            tokens=rows * shape.kv_heads / products,
            elements=shape.cached_elements / shape.kv_heads,
            depth=absorbed,
        ),
    )


def visible_in_window(
    context_tokens: Number, tokens: Number, visible_new_tokens: Number, window_tokens: Number
) -> Float[Array, "*b"]:
    """Tokens that a new token sees through a window, on average over the new ones.

    Args:
        context_tokens, tokens: "*b".
        visible_new_tokens: "*b"; what they see of each other without a window, themselves included.
        window_tokens: "*b", >= 1; the most that is seen, sinks included.
    Returns:
        "*b"; for a chain, where visible_new_tokens is (tokens + 1) / 2, the mean of min(context + i, window) over i = 1 to
        tokens, exact for whole numbers. Otherwise the same with as many tokens at equally spaced depths.
    Gradient: kinks where the window begins and where it ends to cut.
    """
    context, tokens, window = (jnp.asarray(as_float(x)) for x in (context_tokens, tokens, window_tokens))
    # Depths 1, 1 + step, ..., so spaced that their mean is what is visible: 1 for a chain, less for a tree.
    mean = jnp.asarray(as_float(visible_new_tokens))
    several = tokens > 1.0
    step = either(several, 2.0 * (mean - 1.0) / either(several, tokens - 1.0, 1.0), 0.0)
    # Tokens that lie within the window: context + 1 + (i - 1) step <= window.
    flat = step <= 0
    room = window - context - 1.0
    within = either(flat, either(room >= 0, tokens, 0.0), jnp.floor(room / either(flat, 1.0, step)) + 1.0)
    within = jnp.clip(within, 0.0, tokens)
    seen = within * (context + 1.0) + step * within * (within - 1.0) / 2.0
    return (seen + (tokens - within) * window) / tokens
