"""Shape of a decoder as numbers one may vary: parameters per tensor kind, and elements of KV cache per token.

One description for dense and mixture-of-experts networks, grouped-query and multi-head-latent attention, full and sliding
windows: what a network lacks is 0, so that stacked architectures of any kind go through one `vmap`.
"""

from __future__ import annotations

import flax.struct
import jax

from hwmodels.numerics.reprs import short_line, tree_html
from hwmodels.numerics.scalars import Leaf, Number, as_float, either

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


@flax.struct.dataclass
class Architecture:
    """Sizes of a decoder.

    Every field is a leaf, flags included. Sizes are >= 0; for a gradient they count as real numbers. Experts, shared experts,
    latent attention and windows are absent at their defaults.
    """

    num_layers: Leaf
    hidden_size: Leaf
    intermediate_size: Leaf  # of the layers that are not mixtures of experts
    num_heads: Leaf
    num_kv_heads: Leaf  # without meaning in latent attention
    head_dim: Leaf  # latent attention: the part of a query or key that is not rotated
    vocab_size: Leaf
    tied_embeddings: Leaf = 0.0  # 1: the head multiplies by the embedding, and is stored once
    qk_norm: Leaf = 0.0  # 1: queries and keys are normalised head by head
    gated_ffn: Leaf = 1.0  # 0: two matrices, up and down, in all feed-forward networks
    norms_per_layer: Leaf = 2.0
    vectors_per_layer: Leaf = 0.0  # stored elements of biases, learned sinks and other vectors beside the norms' scales
    vectors_outside_layers: Leaf = (
        0.0  # stored elements of vectors beside the last norm's scale: biases of it, of the head
    )
    learned_positions: Leaf = 0.0  # rows of a position table, stored with the embedding
    # Mixture of experts.
    num_moe_layers: Leaf = 0.0  # layers whose feed-forward network is a mixture of experts
    num_experts: Leaf = 0.0  # routed ones, per layer
    experts_per_token: Leaf = 0.0  # routed ones
    expert_intermediate_size: Leaf = 0.0
    shared_intermediate_size: Leaf = 0.0  # all shared experts of a layer together
    # Multi-head latent attention (DeepSeek-V2): the cache holds one latent vector and one rotated key per token.
    kv_lora_rank: Leaf = 0.0  # 0: grouped-query attention
    q_lora_rank: Leaf = 0.0  # 0: queries come from the hidden state directly
    rope_head_dim: Leaf = 0.0  # rotated part of a query, and of the key that all heads share
    v_head_dim: Leaf = 0.0  # latent attention only; otherwise values are as wide as keys
    # Sliding windows.
    num_window_layers: Leaf = 0.0  # layers that see the last window_tokens and the first sink_tokens only
    window_tokens: Leaf = 0.0
    sink_tokens: Leaf = 0.0

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


def attention_shape(architecture: Architecture) -> AttentionShape:
    """Sizes of attention's products. Latent attention is computed on the latents themselves ("absorbed"), which is what
    decoding does: one key-value head that all query heads share.

    Source: DeepSeek-V2, arXiv:2405.04434, sec. 2.1 and appendix C.
    """
    a = jax.tree.map(as_float, architecture)
    latent = a.kv_lora_rank > 0

    rotated = a.kv_lora_rank + a.rope_head_dim
    return AttentionShape(
        query_size=a.num_heads * (a.head_dim + either(latent, a.rope_head_dim, 0.0)),
        output_size=a.num_heads * either(latent, a.v_head_dim, a.head_dim),
        score_size=either(latent, rotated, a.head_dim),
        value_size=either(latent, a.kv_lora_rank, a.head_dim),
        kv_heads=either(latent, 1.0, a.num_kv_heads),
        cached_elements=either(latent, rotated, 2.0 * a.num_kv_heads * a.head_dim),
    )


def parameters(architecture: Architecture) -> dict[str, Leaf]:
    """Stored parameters per kind, all layers together.

    Args:
        architecture: leaves "*b".
    Returns:
        kind -> "*b"; kinds that a network lacks are 0, and so is a tied head, which is stored as "embed". Latent attention:
        "q" is both query projections, "k" the joint projection to latents and the keys' part of the projection from them,
        "v" the values' part. "norm" holds every vector.
    """
    a = jax.tree.map(as_float, architecture)
    shape = attention_shape(a)
    latent, low_rank_query = a.kv_lora_rank > 0, a.q_lora_rank > 0
    kv_size = a.num_kv_heads * a.head_dim
    embedding = a.vocab_size * a.hidden_size
    query = either(low_rank_query, a.q_lora_rank * (a.hidden_size + shape.query_size), a.hidden_size * shape.query_size)
    latent_keys = a.hidden_size * shape.cached_elements + a.kv_lora_rank * a.num_heads * a.head_dim
    latent_values = a.kv_lora_rank * shape.output_size
    dense_layers = a.num_layers - a.num_moe_layers
    expert = a.num_moe_layers * a.num_experts * a.hidden_size * a.expert_intermediate_size
    shared = a.num_moe_layers * a.hidden_size * a.shared_intermediate_size
    # The heads of a layer share the scales of their query and key norms; latents and low-rank queries have their own.
    scales = (
        a.norms_per_layer * a.hidden_size
        + 2.0 * a.qk_norm * a.head_dim
        + either(latent, a.kv_lora_rank + a.q_lora_rank, 0.0)
    )
    stored = {
        "embed": embedding + a.learned_positions * a.hidden_size,
        "q": a.num_layers * query,
        "k": a.num_layers * either(latent, latent_keys, a.hidden_size * kv_size),
        "v": a.num_layers * either(latent, latent_values, a.hidden_size * kv_size),
        "o": a.num_layers * shape.output_size * a.hidden_size,
        "gate": a.gated_ffn * dense_layers * a.hidden_size * a.intermediate_size,
        "up": dense_layers * a.hidden_size * a.intermediate_size,
        "down": dense_layers * a.intermediate_size * a.hidden_size,
        "router": a.num_moe_layers * a.hidden_size * a.num_experts,
        "expert_gate": a.gated_ffn * expert,
        "expert_up": expert,
        "expert_down": expert,
        "shared": (2.0 + a.gated_ffn) * shared,
        "lm_head": (1.0 - a.tied_embeddings) * embedding,
        "norm": a.num_layers * (scales + a.vectors_per_layer) + a.hidden_size + a.vectors_outside_layers,
    }
    return {kind: stored[kind] for kind in KINDS}


def kv_elements_per_token(architecture: Architecture) -> Leaf:
    """Elements that one token adds to the KV cache, all layers: keys and values, or latents and rotated keys.

    Args:
        architecture: leaves "*b".
    Returns:
        "*b".
    """
    return as_float(architecture.num_layers) * attention_shape(architecture).cached_elements


def cached_tokens(architecture: Architecture, context_tokens: Number) -> Leaf:
    """Tokens that a sequence keeps in the cache, on average over layers: windows drop what they no longer see.

    Args:
        context_tokens: "*b", >= 0.
    Returns:
        "*b", <= context_tokens. Gradient: kink where a window is just full.
    """
    a, context = jax.tree.map(as_float, architecture), as_float(context_tokens)
    window_share = a.num_window_layers / a.num_layers
    kept = a.window_tokens + a.sink_tokens
    kept = either(context < kept, context, kept)
    return (1.0 - window_share) * context + window_share * kept


def cached_rows(
    architecture: Architecture, context_tokens: Number, *, batch: Number, shared_tokens: Number = 0.0
) -> Leaf:
    """Tokens in the caches of all sequences together, on average over layers; what they share counts once.

    Args:
        context_tokens: "*b", >= 0; of each sequence. batch: "*b", >= 1.
        shared_tokens: "*b", in [0, context_tokens]; the beginning of the context, common to all sequences.
    """
    context, shared = as_float(context_tokens), as_float(shared_tokens)
    own = cached_tokens(architecture, context - shared)
    return as_float(batch) * own + (cached_tokens(architecture, context) - own)
