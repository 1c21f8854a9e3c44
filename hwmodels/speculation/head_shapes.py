"""Shapes of draft heads that are trained for a target, from the target's own shapes."""

from __future__ import annotations

import dataclasses

from hwmodels.network.architecture import Architecture
from hwmodels.numerics.scalars import Leaf
from hwmodels.speculation.draft_cost import DraftCost

__all__ = ["EAGLE3_VOCABULARY", "block_head", "eagle_head", "medusa_head", "multi_token_head", "one_layer"]

#: Rows of an EAGLE-3 head's own vocabulary; that of the head for Llama-3.1-8B (config.json: draft_vocab_size).
EAGLE3_VOCABULARY = 32_000.0

#: Features of the hidden size that a head's projection reads: those of a token and of the target's hidden state.
_PROJECTED = 2.0


def eagle_head(target: Architecture, vocabulary: float | None = None) -> DraftCost:
    """An EAGLE head: one layer of the target's behind a projection of token and feature, and a head.

    Args:
        target: leaves are single numbers.
        vocabulary: rows of its own head, whose logits are mapped to the target's; None, or as many as the target's: the
            target's head.
    Source: Li et al. 2024, arXiv:2401.15077, Sec. 3.1; EAGLE-3, arXiv:2503.01840, for a vocabulary of its own.
    """
    rows = float(target.vocab_size) if vocabulary is None else min(vocabulary, float(target.vocab_size))
    return DraftCost(
        architecture=one_layer(target, rows),
        shares_ends=float(rows == float(target.vocab_size)),
        maps_logits=float(rows != float(target.vocab_size)),
        statement="one layer of the target's, with a projection and a head",
    )


def multi_token_head(target: Architecture) -> DraftCost:
    """A network's own head for further tokens: one layer behind a projection; embedding and head are the target's.

    Source: DeepSeek-V3, arXiv:2412.19437, Sec. 2.2.
    """
    return DraftCost(
        architecture=one_layer(target, target.vocab_size),
        shares_ends=1.0,
        statement="one layer of the target's, with a projection",
    )


def medusa_head(target: Architecture, blocks: Leaf = 1.0) -> DraftCost:
    """A Medusa head for each drafted token: residual blocks and an LM head of its own, without attention.

    A block's matrix is as many weights as the hidden size has rows of the LM head. Of memory, one head is counted.

    Args:
        blocks: of each head.
    Source: Cai et al. 2024, arXiv:2401.10774, Sec. 2.1.
    """
    own = one_layer(target, target.vocab_size + blocks * target.hidden_size)
    return DraftCost(
        # Tied, so that no table of embeddings lies beside the head.
        architecture=dataclasses.replace(own, num_layers=0.0, tied_embeddings=1.0),
        statement="Medusa heads: residual blocks and an LM head of its own for each token; memory counts one",
    )


#: Layers of released block drafters: DFlash's for Qwen3.5-27B has 3.46 GB in 16 bits, which are five of the target's layers.
_BLOCK_LAYERS = 5.0


def block_head(target: Architecture, layers: Leaf = _BLOCK_LAYERS) -> DraftCost:
    """A drafter that proposes a block of tokens in one pass: few layers of the target's; embedding and head are the target's.

    One projection joins the features of as many of the target's layers as the drafter has. Its attention has no gates.
    Source: DFlash, arXiv:2602.06036, Sec. 4; the drafter for Qwen3.5-4B, whose projection is 2,560 x 12,800.
    """
    head = one_layer(target, target.vocab_size, projected=1.0)
    return DraftCost(
        architecture=dataclasses.replace(head, num_layers=layers, attention_gate=0.0),
        shares_ends=1.0,
        statement="a block drafter of few layers of the target's",
        block=True,
    )


def one_layer(target: Architecture, vocabulary: Leaf, projected: float = _PROJECTED) -> Architecture:
    """One dense layer of the target's shapes, which attends to a cache, with a head.

    The projection is counted into the feed-forward network.

    Args:
        vocabulary: rows of the head.
        projected: features of the hidden size that the projection reads for each layer.
    """
    width = target.intermediate_size or target.expert_intermediate_size * target.experts_per_token
    matrices = 2.0 + float(target.gated_ffn)
    return dataclasses.replace(
        target,
        num_layers=1.0,
        vocab_size=vocabulary,
        tied_embeddings=0.0,
        intermediate_size=width + projected * target.hidden_size / matrices,
        num_ffn_layers=0.0,
        num_moe_layers=0.0,
        num_experts=0.0,
        experts_per_token=0.0,
        expert_intermediate_size=0.0,
        shared_intermediate_size=0.0,
        expert_hidden_size=0.0,
        num_window_layers=0.0,
        window_tokens=0.0,
        sink_tokens=0.0,
        window_query_ratio=1.0,
        window_kv_ratio=1.0,
        selected_tokens=0.0,
        num_selecting_layers=0.0,
        num_index_layers=0.0,
        index_heads=0.0,
        index_head_dim=0.0,
        num_linear_layers=0.0,
        linear_key_heads=0.0,
        linear_value_heads=0.0,
        linear_key_dim=0.0,
        linear_value_dim=0.0,
        linear_conv_tokens=0.0,
        learned_positions=0.0,
        vectors_outside_layers=0.0,
    )
