"""The sizes and counts that a config.json states or implies, by the rules of its family."""

from __future__ import annotations

from typing import NamedTuple

from hwmodels.catalog.huggingface.expert_layers import experts_of
from hwmodels.catalog.huggingface.family import Family, Switch
from hwmodels.catalog.huggingface.settings import LARGEST_LAYERS, Settings
from hwmodels.catalog.huggingface.windows import linear_layers, window_layers

__all__ = ["architecture_values"]


def architecture_values(settings: Settings, family: Family) -> dict[str, float]:
    """Field of `Architecture` -> value, each right in itself; whether they fit together is not checked here.

    Raises:
        EntryError: a value is missing, of the wrong kind or out of range.
        NotImplementedError: layers of another kind than full or sliding attention; embeddings of another width.
    """
    layers = settings.size("num_hidden_layers", most=LARGEST_LAYERS)
    hidden, vocab = settings.size("hidden_size"), settings.size("vocab_size")
    attention, experts = _attention(settings, family, hidden), experts_of(settings, family)
    intermediate = _intermediate_size(settings, family, hidden) if experts.num_layers < layers else 0
    projected = settings.optional_size("word_embed_proj_dim")
    if projected not in (None, hidden):
        raise NotImplementedError(
            f"{settings.where}: word_embed_proj_dim is {projected} and hidden_size {hidden}: embeddings of another width are "
            "not modelled; allowed are equal ones"
        )
    rule = family.norms_per_layer
    norms = rule if isinstance(rule, int) else rule(settings)

    norm_bias = hidden * _on(settings, family.norm_biases)
    linear = _linear_attention(settings, family)
    vectors = layers * norms * norm_bias + (layers - linear.get("num_linear_layers", 0)) * attention.vectors
    matrices = 1 + family.gated_ffn
    dense_layers = layers - experts.num_layers
    vectors += dense_layers * (matrices * intermediate + hidden) * _on(settings, family.ffn_bias)
    vectors += experts.num_layers * experts.vectors(hidden, matrices)
    outside = norm_bias + vocab * _on(settings, family.head_bias)
    if family.embedding_norm:
        outside += hidden + norm_bias
    positions = 0
    if family.learned_positions is not None:
        positions = settings.size("max_position_embeddings") + family.learned_positions
    seen = window_layers(settings, family)
    values = {
        "num_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_heads": attention.heads,
        "num_kv_heads": attention.kv_heads,
        "head_dim": attention.head_dim,
        "vocab_size": vocab,
        "tied_embeddings": settings.flag("tie_word_embeddings"),
        "qk_norm": attention.qk_norm,
        "gated_ffn": family.gated_ffn,
        "norms_per_layer": norms,
        "vectors_per_layer": vectors / layers,
        "vectors_outside_layers": outside,
        "learned_positions": positions,
        "num_moe_layers": experts.num_layers,
        "num_experts": experts.experts,
        "experts_per_token": experts.per_token,
        "expert_intermediate_size": experts.size,
        "shared_intermediate_size": experts.shared,
        "num_window_layers": sum(window is not None for window in seen),
        "window_tokens": max((window for window in seen if window is not None), default=0),
        "attention_gate": family.attention_gate,
    }
    return {name: float(value) for name, value in (values | attention.latent | linear).items()}


def _intermediate_size(settings: Settings, family: Family, hidden: int) -> int:
    derived = family.defaults.get("intermediate_size", 0) is None
    return (
        settings.optional_size("intermediate_size") if derived else settings.size("intermediate_size")
    ) or 4 * hidden


def _linear_attention(settings: Settings, family: Family) -> dict[str, int]:
    layers = sum(linear_layers(settings, family))
    if not layers:
        return {}
    return {
        "num_linear_layers": layers,
        "linear_key_heads": settings.size("linear_num_key_heads"),
        "linear_value_heads": settings.size("linear_num_value_heads"),
        "linear_key_dim": settings.size("linear_key_head_dim"),
        "linear_value_dim": settings.size("linear_value_head_dim"),
        "linear_conv_tokens": settings.size("linear_conv_kernel_dim"),
    }


class _Attention(NamedTuple):
    heads: int
    kv_heads: int
    head_dim: int
    qk_norm: bool
    vectors: int  # per layer that attends to a cache, beside the scales of norms head by head
    latent: dict[str, int]


def _on(settings: Settings, switch: Switch) -> bool:
    return switch if isinstance(switch, bool) else settings.flag(switch)


def _attention(settings: Settings, family: Family, hidden: int) -> _Attention:
    heads = settings.size("num_attention_heads")
    if family.latent:
        return _latent_attention(settings, family, hidden, heads)
    kv_heads = _kv_heads(settings, family, heads)
    head_dim = settings.optional_size("head_dim")
    if head_dim is None or not family.free_head_dim:
        if hidden % heads:
            remedy = ", or head_dim stated" if family.free_head_dim else ""
            problem = f"is {hidden}, which {heads} heads do not divide; it must be a multiple of them{remedy}"
            raise settings.error("hidden_size", problem)
        if head_dim not in (None, hidden // heads):
            raise settings.error(
                "head_dim", f"is {head_dim}; in this family it is hidden_size / heads = {hidden // heads}"
            )
        head_dim = hidden // heads
    query, key_value = heads * head_dim, kv_heads * head_dim
    norm = family.qk_norm
    if norm.startswith("optional"):
        norm = norm.removeprefix("optional_") if settings.flag("use_qk_norm") else "none"
    projected = query * (1 + family.attention_gate) + 2 * key_value
    vectors = projected * _on(settings, family.qkv_bias) + hidden * _on(settings, family.o_bias)
    if norm == "all":
        # An architecture that normalises has one scale for all query heads and one for all key heads; this has more.
        vectors += query + key_value - 2 * head_dim
    vectors += heads * family.learned_sinks
    return _Attention(heads, kv_heads, head_dim, norm != "none", vectors, {})


def _kv_heads(settings: Settings, family: Family, heads: int) -> int:
    # Some families share one head by `multi_query`, or have as many as query heads.
    if "multi_query" in family.defaults and not settings.flag("new_decoder_architecture"):
        return 1 if settings.flag("multi_query") else heads
    stated = settings.optional_size("num_key_value_heads")
    if not family.grouped_queries and stated not in (None, heads):
        raise settings.error("num_key_value_heads", f"is {stated}; this family has as many as query heads, {heads}")
    return stated or heads


def _latent_attention(settings: Settings, family: Family, hidden: int, heads: int) -> _Attention:
    rank, query_rank = settings.size("kv_lora_rank"), settings.optional_size("q_lora_rank", least=0) or 0
    rotated = settings.size("qk_rope_head_dim")
    latent = {
        "kv_lora_rank": rank,
        "q_lora_rank": query_rank,
        "rope_head_dim": rotated,
        "v_head_dim": settings.size("v_head_dim"),
    }
    # Only what projects from and to the residual stream has biases.
    biases = (query_rank + rank + rotated + hidden) * settings.flag("attention_bias")
    return _Attention(heads, heads, settings.size("qk_nope_head_dim"), False, biases, latent)
