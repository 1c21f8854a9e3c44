"""Shape of a decoder as numbers one may vary: parameters per tensor kind, and elements of KV cache per token.

One description for dense and mixture-of-experts networks, grouped-query and multi-head-latent attention, full and sliding
windows, layers with linear attention: what a network lacks is 0, so that stacked architectures of any kind go through one
`vmap`.
"""

from __future__ import annotations

from collections.abc import Collection

import flax.struct
import jax

from hwmodels.numerics.fields import (
    AMOUNT,
    CHANCE,
    FINITE,
    NOT_NEGATIVE,
    check_at_most,
    check_number,
    number,
    short_line,
    tree_html,
)
from hwmodels.numerics.scalars import Leaf, Number, as_float, either

# What is decoded: sequences, their context and their lengths.


@flax.struct.dataclass
class Workload:
    """What is decoded. Every field is a leaf, "*b"."""

    batch: Leaf = number(AMOUNT, default=1.0)  # sequences decoded together
    context_tokens: Leaf = number(NOT_NEGATIVE, default=1024.0)  # cached tokens per sequence at the step that is priced
    prompt_tokens: Leaf = number(NOT_NEGATIVE, default=512.0)  # per sequence, processed by one prefill
    output_tokens: Leaf = number(AMOUNT, default=512.0)  # per sequence, decoded
    #: Of the context, that all sequences have in common: held once, and read once per step.
    shared_tokens: Leaf = number(NOT_NEGATIVE, default=0.0)


#: Every kind of stored tensor, dense and mixture-of-experts, in the order in which a network uses them.
KINDS = (
    "embed",
    "q",
    "k",
    "v",
    "o",
    "gate",
    "up",
    "down",
    "router",
    "expert_gate",
    "expert_up",
    "expert_down",
    "shared",
    "lm_head",
    "norm",
)

#: The matrices of one dense layer: what a draft may compress. Embeddings, norms and head usually stay 16-bit.
LAYER_MATRICES = ("q", "k", "v", "o", "gate", "up", "down")

#: The matrices of routed experts.
EXPERT_MATRICES = ("expert_gate", "expert_up", "expert_down")

#: The matrices of any layer, experts included.
ALL_LAYER_MATRICES = (*LAYER_MATRICES, *EXPERT_MATRICES, "shared")

#: Numbers of layers, of which a part of a network has its share.
LAYER_COUNTS = (
    *("num_layers", "num_ffn_layers", "num_moe_layers", "num_window_layers", "num_linear_layers"),
    *("num_selecting_layers", "num_index_layers"),
)

#: Of an element of linear attention's matrices, and of one that its convolution keeps.
_STATE_BYTES, _HELD_BYTES = 4.0, 2.0


def _absent() -> Leaf:
    """A size or count of what a network may lack."""
    return number(NOT_NEGATIVE, default=0.0)


@flax.struct.dataclass
class Architecture:
    """Sizes of a decoder.

    Every field is a leaf, flags included. Sizes are >= 0; for a gradient they count as real numbers. Experts, shared experts,
    latent attention, windows and linear attention are absent at their defaults. No layers: a draft head without attention.
    """

    num_layers: Leaf = number(NOT_NEGATIVE)  # that attend, to a cache or linearly
    hidden_size: Leaf = number(AMOUNT)
    intermediate_size: Leaf = number(NOT_NEGATIVE)  # of the layers that are not mixtures of experts
    num_heads: Leaf = number(AMOUNT)
    num_kv_heads: Leaf = number(AMOUNT)  # without meaning in latent attention
    head_dim: Leaf = number(AMOUNT)  # latent attention: the part of a query or key that is not rotated
    vocab_size: Leaf = number(AMOUNT)
    tied_embeddings: Leaf = number(CHANCE, default=0.0)  # 1: the head multiplies by the embedding, and is stored once
    qk_norm: Leaf = number(CHANCE, default=0.0)  # 1: queries and keys are normalised head by head
    gated_ffn: Leaf = number(CHANCE, default=1.0)  # 0: two matrices, up and down, in all feed-forward networks
    norms_per_layer: Leaf = number(NOT_NEGATIVE, default=2.0)
    #: Stored elements of biases, learned sinks and other vectors beside the norms' scales, as a mean: it may be negative.
    vectors_per_layer: Leaf = number(FINITE, default=0.0)
    #: Stored elements of vectors beside the last norm's scale: biases of it, of the head.
    vectors_outside_layers: Leaf = _absent()
    learned_positions: Leaf = _absent()  # rows of a position table, stored with the embedding
    num_ffn_layers: Leaf = _absent()  # layers that have a feed-forward network; 0: all that attend
    # Mixture of experts.
    num_moe_layers: Leaf = _absent()  # layers whose feed-forward network is a mixture of experts
    num_experts: Leaf = _absent()  # routed ones, per layer
    experts_per_token: Leaf = _absent()  # routed ones
    expert_intermediate_size: Leaf = _absent()
    shared_intermediate_size: Leaf = _absent()  # all shared experts of a layer together
    #: Of what routed experts read and write, which two matrices join; 0: hidden_size.
    expert_hidden_size: Leaf = _absent()
    # Multi-head latent attention (DeepSeek-V2): the cache holds one latent vector and one rotated key per token.
    kv_lora_rank: Leaf = _absent()  # 0: grouped-query attention
    q_lora_rank: Leaf = _absent()  # 0: queries come from the hidden state directly
    rope_head_dim: Leaf = _absent()  # rotated part of a query, and of the key that all heads share
    v_head_dim: Leaf = _absent()  # 0, never so in latent attention: values are as wide as keys
    # Sliding windows.
    num_window_layers: Leaf = _absent()  # layers that see the last window_tokens and the first sink_tokens only
    window_tokens: Leaf = _absent()
    sink_tokens: Leaf = _absent()
    #: Elements of all heads' queries there, by those of other layers.
    window_query_ratio: Leaf = number(AMOUNT, default=1.0)
    window_kv_ratio: Leaf = number(AMOUNT, default=1.0)  # elements that these layers cache of a token, likewise
    # Attention to selected tokens: narrow keys of all tokens are scored, and the best tokens are attended to.
    selected_tokens: Leaf = _absent()  # that a token attends to at most
    num_selecting_layers: Leaf = _absent()  # that attend to so many
    num_index_layers: Leaf = _absent()  # that score tokens; the others take the choice of one before
    index_heads: Leaf = _absent()
    index_head_dim: Leaf = _absent()  # elements of the one key of a token, which is cached
    # Linear attention (gated delta nets, Mamba-2): a matrix per head in place of the keys and values of all tokens; or, without
    # keys, a short convolution alone, between two gates (LFM2).
    num_linear_layers: Leaf = _absent()  # layers that have it; the others attend to what is cached
    linear_key_heads: Leaf = _absent()  # of queries and of keys
    linear_value_heads: Leaf = _absent()  # each with a matrix of its own
    linear_key_dim: Leaf = _absent()  # of a head
    linear_value_dim: Leaf = _absent()  # of a head
    #: That the convolution over queries, keys and values joins, the new one included.
    linear_conv_tokens: Leaf = _absent()
    #: Numbers per head and token of how a matrix forgets and learns; Mamba-2 has one for both.
    linear_rates: Leaf = number(NOT_NEGATIVE, default=2.0)
    #: 1: in the other layers a gate that comes with the queries multiplies attention's outputs.
    attention_gate: Leaf = number(CHANCE, default=0.0)

    def check_together(self) -> None:
        """Hold sizes to each other. Raises ValueError: a part that is larger than its whole."""
        check_at_most(self, "num_kv_heads", "num_heads")
        check_at_most(self, "experts_per_token", "num_experts")

    def __repr__(self) -> str:
        return short_line(self, "num_layers", "hidden_size", "num_heads", "num_kv_heads", "vocab_size", "num_experts")

    def _repr_html_(self) -> str:
        return tree_html(self)


@flax.struct.dataclass
class AttentionShape:
    """What attention multiplies, whichever form it has: leaves "*b"."""

    query_size: Leaf  # elements of all heads' queries that come out of the last query projection
    output_size: Leaf  # elements of all heads' outputs, which enter the projection "o"
    score_size: Leaf  # elements of one query-key product
    value_size: Leaf  # elements of one value row that a score weights
    kv_heads: Leaf  # distinct key-value heads in the cache
    cached_elements: Leaf  # per token and layer


@flax.struct.dataclass
class LinearShape:
    """Sizes of a layer with linear attention; leaves "*b", 0 where a network has none."""

    keys: Leaf  # elements of all heads' keys, and of their queries
    values: Leaf  # of all heads' values, of their gates and of what enters the projection "o"
    convolved: Leaf  # queries, keys and values, which go through the convolution
    state: Leaf  # elements of all heads' matrices
    held: Leaf  # elements of earlier tokens that the convolution still needs


def linear_shape(architecture: Architecture) -> LinearShape:
    """Sizes of a gated delta net.

    Source: Yang et al. 2024, arXiv:2412.06464, with the projections and the convolution of Qwen3-Next in transformers.
    """
    a = jax.tree.map(as_float, architecture)
    keys, values = a.linear_key_heads * a.linear_key_dim, a.linear_value_heads * a.linear_value_dim
    convolved = 2.0 * keys + values
    earlier = either(a.linear_conv_tokens > 1, a.linear_conv_tokens - 1.0, 0.0)
    return LinearShape(
        keys=keys,
        values=values,
        convolved=convolved,
        state=values * a.linear_key_dim,
        held=convolved * earlier,
    )


def attention_layers(architecture: Architecture) -> Leaf:
    """Layers that attend to cached keys and values, or latents: all but those with linear attention, "*b"."""
    return as_float(architecture.num_layers) - as_float(architecture.num_linear_layers)


def window_share(architecture: Architecture) -> Leaf:
    """The share of these layers that see a window only, "*b"."""
    layers = attention_layers(architecture)
    return as_float(architecture.num_window_layers) / either(layers > 0, layers, 1.0)


def dense_layers(architecture: Architecture) -> Leaf:
    """Layers with a feed-forward network that is no mixture of experts, "*b"."""
    return ffn_layers(architecture) - as_float(architecture.num_moe_layers)


def ffn_layers(architecture: Architecture) -> Leaf:
    """Layers with a feed-forward network, "*b"."""
    stated = as_float(architecture.num_ffn_layers)
    return either(stated > 0, stated, as_float(architecture.num_layers))


def expert_width(architecture: Architecture) -> Leaf:
    """Elements that a routed expert reads and writes, "*b"."""
    stated = as_float(architecture.expert_hidden_size)
    return either(stated > 0, stated, as_float(architecture.hidden_size))


def _window_mean(architecture: Architecture, ratio: Leaf) -> Leaf:
    """A size on average over layers that attend to a cache, by that of those without a window, "*b"."""
    return 1.0 + window_share(architecture) * (as_float(ratio) - 1.0)


def cached_window_share(architecture: Architecture) -> Leaf:
    """The share of a token's cached elements that layers with a window hold, "*b"."""
    ratio = as_float(architecture.window_kv_ratio)
    return window_share(architecture) * ratio / _window_mean(architecture, ratio)


def attention_shape(architecture: Architecture) -> AttentionShape:
    """Sizes of attention's products; of queries, outputs and cache on average over layers.

    Latent attention is computed on the latents themselves ("absorbed"), which is what decoding does: one key-value head that
    all query heads share.

    Source: DeepSeek-V2, arXiv:2405.04434, sec. 2.1 and appendix C.
    """
    a = jax.tree.map(as_float, architecture)
    latent = a.kv_lora_rank > 0

    rotated = a.kv_lora_rank + a.rope_head_dim
    value_dim = either(a.v_head_dim > 0, a.v_head_dim, a.head_dim)
    queries, cached = _window_mean(a, a.window_query_ratio), _window_mean(a, a.window_kv_ratio)
    return AttentionShape(
        query_size=a.num_heads * (a.head_dim + either(latent, a.rope_head_dim, 0.0)) * queries,
        output_size=a.num_heads * value_dim * queries,
        score_size=either(latent, rotated, a.head_dim),
        value_size=either(latent, a.kv_lora_rank, value_dim),
        kv_heads=either(latent, 1.0, a.num_kv_heads),
        cached_elements=either(latent, rotated, a.num_kv_heads * (a.head_dim + value_dim)) * cached,
    )


def parameters(architecture: Architecture) -> dict[str, Leaf]:
    """Stored parameters per kind, all layers together.

    Args:
        architecture: leaves "*b".
    Returns:
        kind -> "*b"; kinds that a network lacks are 0, and so is a tied head, which is stored as "embed". Latent attention:
        "q" is both query projections, "k" the joint projection to latents and the keys' part of the projection from them,
        "v" the values' part. Linear attention: "q" holds the gates' projections too. Indices of selected tokens: "q" and "k".
        "shared" holds the matrices into and out of the width of routed experts. "norm" holds every vector, and what
        the convolutions multiply by.
    """
    a = jax.tree.map(as_float, architecture)
    shape, linear = attention_shape(a), linear_shape(a)
    cached_layers, linear_layers = attention_layers(a), a.num_linear_layers
    latent, low_rank_query = a.kv_lora_rank > 0, a.q_lora_rank > 0
    keys = a.num_kv_heads * a.head_dim * _window_mean(a, a.window_kv_ratio)
    values = shape.cached_elements - keys
    embedding = a.vocab_size * a.hidden_size
    query = either(low_rank_query, a.q_lora_rank * (a.hidden_size + shape.query_size), a.hidden_size * shape.query_size)
    query += a.attention_gate * a.hidden_size * shape.output_size
    # Each head's gate of its values, how much of its matrix it forgets and how much it learns.
    linear_query = a.hidden_size * (linear.keys + linear.values + a.linear_rates * a.linear_value_heads)
    index_query = a.hidden_size * a.index_heads
    index_query += either(low_rank_query, a.q_lora_rank, a.hidden_size) * a.index_heads * a.index_head_dim
    latent_keys = a.hidden_size * shape.cached_elements + a.kv_lora_rank * a.num_heads * a.head_dim
    latent_values = a.kv_lora_rank * shape.output_size
    dense = dense_layers(a)
    expert = a.num_moe_layers * a.num_experts * expert_width(a) * a.expert_intermediate_size
    shared = a.num_moe_layers * a.hidden_size * a.shared_intermediate_size
    # The heads of a layer share the scales of their query and key norms; latents and low-rank queries have their own.
    scales = 2.0 * a.qk_norm * a.head_dim + either(latent, a.kv_lora_rank + a.q_lora_rank, 0.0)
    # Heads share the scale of their outputs' norm; each has two numbers of how it forgets. Convolutions alone have neither.
    linear_vectors = linear.convolved * a.linear_conv_tokens
    linear_vectors += either(a.linear_key_dim > 0, a.linear_value_dim + 2.0 * a.linear_value_heads, 0.0)
    vectors = norms(a) * a.hidden_size + a.num_layers * a.vectors_per_layer
    vectors += cached_layers * scales + linear_layers * linear_vectors
    stored = {
        "embed": embedding + a.learned_positions * a.hidden_size,
        "q": cached_layers * query + linear_layers * linear_query + a.num_index_layers * index_query,
        "k": cached_layers * either(latent, latent_keys, a.hidden_size * keys)
        + linear_layers * a.hidden_size * linear.keys
        + a.num_index_layers * a.hidden_size * a.index_head_dim,
        "v": cached_layers * either(latent, latent_values, a.hidden_size * values)
        + linear_layers * a.hidden_size * linear.values,
        "o": (cached_layers * shape.output_size + linear_layers * linear.values) * a.hidden_size,
        "gate": a.gated_ffn * dense * a.hidden_size * a.intermediate_size,
        "up": dense * a.hidden_size * a.intermediate_size,
        "down": dense * a.intermediate_size * a.hidden_size,
        "router": a.num_moe_layers * a.hidden_size * a.num_experts,
        "expert_gate": a.gated_ffn * expert,
        "expert_up": expert,
        "expert_down": expert,
        "shared": (2.0 + a.gated_ffn) * shared + 2.0 * narrowing(a),
        "lm_head": (1.0 - a.tied_embeddings) * embedding,
        "norm": vectors + a.hidden_size + a.vectors_outside_layers,
    }
    return {kind: stored[kind] for kind in KINDS}


def norms(architecture: Architecture) -> Leaf:
    """Norms of the residual stream in all layers, half of them of feed-forward networks, "*b"."""
    a = architecture
    return as_float(a.norms_per_layer) * (as_float(a.num_layers) + ffn_layers(a)) / 2.0


def narrowing(architecture: Architecture) -> Leaf:
    """Weights of all layers that lead into the width of routed experts, and as many out of it, "*b"."""
    a = architecture
    return as_float(a.num_moe_layers) * as_float(a.hidden_size) * as_float(a.expert_hidden_size)


def weights_per_token(architecture: Architecture) -> Leaf:
    """Weights of the layers' matrices that one token is multiplied with, those of chosen experts included.

    Args:
        architecture: leaves "*b".
    Returns:
        "*b".
    """
    stored = parameters(architecture)
    chosen = architecture.experts_per_token / either(architecture.num_experts > 0, architecture.num_experts, 1.0)
    experts = sum(stored[kind] for kind in EXPERT_MATRICES)
    return sum(stored[kind] for kind in (*LAYER_MATRICES, "shared")) + chosen * experts


def kv_elements_per_token(architecture: Architecture) -> Leaf:
    """Elements that one token adds to the cache, all layers: keys and values, or latents and rotated keys; index keys.

    Layers with linear attention add none: see `state_bytes`.

    Args:
        architecture: leaves "*b".
    Returns:
        "*b".
    """
    attended = attention_layers(architecture) * attention_shape(architecture).cached_elements
    return attended + as_float(architecture.num_index_layers) * as_float(architecture.index_head_dim)


def state_bytes(architecture: Architecture) -> Leaf:
    """Bytes that layers with linear attention keep of a sequence, whatever its length: matrices in 32 bits, rest in 16.

    Args:
        architecture: leaves "*b".
    Returns:
        "*b".
    Source: config.json of Qwen/Qwen3.5-27B, mamba_ssm_dtype; engines that keep matrices in 16 bits hold about half.
    """
    a, shape = architecture, linear_shape(architecture)
    return as_float(a.num_linear_layers) * (_STATE_BYTES * shape.state + _HELD_BYTES * shape.held)


def cached_tokens(architecture: Architecture, context_tokens: Number) -> Leaf:
    """Tokens that a sequence keeps in the cache, on average over cached elements: windows drop what they no longer see.

    Args:
        context_tokens: "*b", >= 0.
    Returns:
        "*b", <= context_tokens. Gradient: kink where a window is just full.
    """
    a, context = jax.tree.map(as_float, architecture), as_float(context_tokens)
    share, kept = cached_window_share(a), a.window_tokens + a.sink_tokens
    kept = either(context < kept, context, kept)
    return (1.0 - share) * context + share * kept


def cached_rows(
    architecture: Architecture, context_tokens: Number, *, batch: Number, shared_tokens: Number = 0.0
) -> Leaf:
    """Tokens in the caches of all sequences together, on average over elements; what they share counts once.

    Args:
        context_tokens: "*b", >= 0; of each sequence. batch: "*b", >= 1.
        shared_tokens: "*b", in [0, context_tokens]; the beginning of the context, common to all sequences.
    """
    context, shared = as_float(context_tokens), as_float(shared_tokens)
    own = cached_tokens(architecture, context - shared)
    return as_float(batch) * own + (cached_tokens(architecture, context) - own)


def read_share(architecture: Architecture, rows: Leaf, queries: Leaf) -> Leaf:
    """The share of `rows` cached tokens' elements that `queries` new tokens read, "*b": each selects its own, at most all.

    Departs: tokens that several new ones select count for each; engines gather them for each.
    """
    a = jax.tree.map(as_float, architecture)
    of_rows = queries * a.selected_tokens / either(rows > 0, rows, 1.0)
    skipped = either((a.selected_tokens > 0) & (of_rows < 1.0), 1.0 - of_rows, 0.0)
    elements = kv_elements_per_token(a)
    selected = a.num_selecting_layers * attention_shape(a).cached_elements
    return 1.0 - skipped * selected / either(elements > 0, elements, 1.0)


# Bits read per stored weight and per stored KV element: the one type for bits.

#: Width of an uncompressed bfloat16 or float16 element.
UNCOMPRESSED_BITS = 16.0


@flax.struct.dataclass
class Footprint:
    """Bits READ per stored weight and per stored KV element, by a draft step and by a target step.

    Metadata and padding included. Weights are dictionaries over all of `KINDS`; leaves are "*b", >= 0, fractions too.
    """

    draft_weight_bits: dict[str, Leaf] = number(NOT_NEGATIVE)
    target_weight_bits: dict[str, Leaf] = number(NOT_NEGATIVE)
    draft_kv_bits: Leaf = number(NOT_NEGATIVE)
    target_kv_bits: Leaf = number(NOT_NEGATIVE)


def uniform_weight_bits(bits: Number, kinds: Collection[str] = KINDS) -> dict[str, Leaf]:
    """The same width for some kinds, 16 bits for all others.

    Args:
        bits: "*b", bits read per stored weight of the kinds named.
        kinds: names out of `KINDS`, all unless given; `LAYER_MATRICES` leaves embeddings, norms and head at 16 bits.
    Returns:
        kind -> "*b", over all of `KINDS`.
    Raises:
        ValueError: a name is not in `KINDS`; bits that are no number >= 0.
    """
    check_number("bits", bits, NOT_NEGATIVE)
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown:
        raise ValueError(f"unknown kinds {unknown}; allowed: {', '.join(KINDS)}")
    return {kind: as_float(bits) if kind in kinds else UNCOMPRESSED_BITS for kind in KINDS}


def uniform_footprint(bits: Number) -> Footprint:
    """Draft and target, weights and KV, all at `bits` ("*b") per element; 16 is the uncompressed network."""
    return Footprint(
        draft_weight_bits=uniform_weight_bits(bits),
        target_weight_bits=uniform_weight_bits(bits),
        draft_kv_bits=as_float(bits),
        target_kv_bits=as_float(bits),
    )
