"""Shape of a dense decoder as numbers one may vary: parameters per tensor kind, and KV elements per token."""

from __future__ import annotations

import flax.struct
import jax

from hwmodels.scalars import Leaf, as_float

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


@flax.struct.dataclass
class Architecture:
    """Sizes of a dense decoder with grouped-query attention and a gated feed-forward network.

    Every field is a leaf, flags included, so that stacked architectures go through one `vmap`. Sizes are >= 0; for a
    gradient they count as real numbers.
    """

    num_layers: Leaf
    hidden_size: Leaf
    intermediate_size: Leaf
    num_heads: Leaf
    num_kv_heads: Leaf
    head_dim: Leaf
    vocab_size: Leaf
    tied_embeddings: Leaf = 0.0  # 1: the head multiplies by the embedding, and is stored once
    qk_norm: Leaf = 0.0  # 1: queries and keys are normalised head by head


def parameters(architecture: Architecture) -> dict[str, Leaf]:
    """Stored parameters per kind, all layers together.

    Args:
        architecture: leaves "*b".
    Returns:
        kind -> "*b"; kinds that a dense network lacks are 0, and so is a tied head, which is stored as "embed".
    """
    a = jax.tree.map(as_float, architecture)
    query_size, kv_size = a.num_heads * a.head_dim, a.num_kv_heads * a.head_dim
    embedding = a.vocab_size * a.hidden_size
    # Two norms per layer and the last one; the heads of a layer share the scales of their query and key norms.
    norm = a.num_layers * 2.0 * (a.hidden_size + a.qk_norm * a.head_dim) + a.hidden_size
    dense = {
        "embed": embedding,
        "q": a.num_layers * a.hidden_size * query_size,
        "k": a.num_layers * a.hidden_size * kv_size,
        "v": a.num_layers * a.hidden_size * kv_size,
        "o": a.num_layers * query_size * a.hidden_size,
        "gate": a.num_layers * a.hidden_size * a.intermediate_size,
        "up": a.num_layers * a.hidden_size * a.intermediate_size,
        "down": a.num_layers * a.intermediate_size * a.hidden_size,
        "lm_head": (1.0 - a.tied_embeddings) * embedding,
        "norm": norm,
    }
    return {kind: dense.get(kind, 0.0) for kind in KINDS}


def kv_elements_per_token(architecture: Architecture) -> Leaf:
    """Elements that one token adds to the KV cache: keys and values of every layer.

    Args:
        architecture: leaves "*b".
    Returns:
        "*b".
    """
    a = jax.tree.map(as_float, architecture)
    return 2.0 * a.num_layers * a.num_kv_heads * a.head_dim
