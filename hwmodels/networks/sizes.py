"""The sizes that a config.json states or implies, by the rules of its family."""

from __future__ import annotations

from typing import Any

from hwmodels.catalog.entries import EntryError
from hwmodels.networks.family import Family, Switch
from hwmodels.networks.settings import LARGEST_LAYERS, Settings, shown
from hwmodels.networks.spec import ExpertSizes, LatentSizes, LearnedPositions, LinearSizes, NetworkSpec

__all__ = ["LINEAR_KEYS", "network_spec"]

_FULL, _SLIDING = "full_attention", "sliding_attention"
_SELECTED = "deepseek_sparse_attention"

#: Field of `LinearSizes` -> key of config.json.
LINEAR_KEYS = {
    "key_heads": "linear_num_key_heads",
    "value_heads": "linear_num_value_heads",
    "key_dim": "linear_key_head_dim",
    "value_dim": "linear_value_head_dim",
    "conv_tokens": "linear_conv_kernel_dim",
}


def network_spec(settings: Settings, family: Family) -> NetworkSpec:
    """The sizes of a network, each right in itself.

    Raises:
        EntryError: a value is missing, of the wrong kind or out of range.
        NotImplementedError: layers of another kind than full or sliding attention; embeddings of another width.
    """
    on = lambda switch: _on(settings, switch)
    layers = settings.size("num_hidden_layers", most=LARGEST_LAYERS)
    hidden, vocab = settings.size("hidden_size"), settings.size("vocab_size")
    attention, (experts, expert_layers) = _attention(settings, family, hidden), _experts(settings, family, layers)
    if experts is not None and all(expert_layers):
        intermediate = _expert_channels(settings, experts)
    else:
        intermediate = _intermediate_size(settings, family, hidden)
    projected = settings.optional_size("word_embed_proj_dim")
    if projected not in (None, hidden):
        raise NotImplementedError(
            f"{settings.prefix}word_embed_proj_dim is {projected} and hidden_size {hidden}: embeddings of another width are "
            "not modelled; allowed are equal ones"
        )
    norm = family.qk_norm
    if norm.startswith("optional"):
        norm = norm.removeprefix("optional_") if settings.flag("use_qk_norm") else "none"
    offset, positions = family.learned_positions, None
    if offset is not None:
        positions = LearnedPositions(settings.size("max_position_embeddings") + offset, offset)
    linear_layers = _linear_layers(settings, family, layers)
    linear = _linear_sizes(settings, family, hidden) if any(linear_layers) else None
    rule = family.norms_per_layer
    spec = NetworkSpec(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_layers=layers,
        **attention,
        linear_layers=linear_layers,
        expert_layers=expert_layers,
        windows=_windows(settings, family, layers),
        tie_embeddings=settings.flag("tie_word_embeddings"),
        qk_norm=norm != "none",
        qk_norm_whole=norm == "all",
        qkv_bias=on(family.qkv_bias),
        o_bias=on(family.o_bias),
        ffn_bias=on(family.ffn_bias),
        attention_gate=family.attention_gate,
        attention_sinks=family.learned_sinks,
        learned_positions=positions,
        linear=linear,
        experts=experts,
        gated_ffn=family.gated_ffn,
        norms_per_layer=rule if isinstance(rule, int) else rule(settings),
        norm_biases=on(family.norm_biases),
        head_bias=on(family.head_bias),
        embedding_norm=family.embedding_norm,
    )
    return spec if family.beyond is None else family.beyond(settings, spec)


def _on(settings: Settings, switch: Switch) -> bool:
    return switch if isinstance(switch, bool) else settings.flag(switch)


def _intermediate_size(settings: Settings, family: Family, hidden: int) -> int:
    derived = family.defaults.get("intermediate_size", 0) is None
    return (
        settings.optional_size("intermediate_size") if derived else settings.size("intermediate_size")
    ) or 4 * hidden


def _expert_channels(settings: Settings, experts: ExpertSizes) -> int:
    """What the file states for dense layers, of which there are none; it may leave it out, or state 0."""
    stated = settings.stated("intermediate_size") and settings.get("intermediate_size") not in (None, 0)
    return settings.size("intermediate_size") if stated else experts.inner_size


def _attention(settings: Settings, family: Family, hidden: int) -> dict[str, Any]:
    heads = settings.size("num_attention_heads")
    if family.latent:
        latent = settings.fitted(
            LatentSizes,
            kv_rank=settings.size("kv_lora_rank"),
            rope_head_dim=settings.size("qk_rope_head_dim"),
            value_head_dim=settings.size("v_head_dim"),
            query_rank=settings.optional_size("q_lora_rank", least=0) or None,
        )
        plain = settings.size("qk_nope_head_dim")
        return {"num_heads": heads, "num_kv_heads": heads, "head_dim": plain, "latent": latent}
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
    return {"num_heads": heads, "num_kv_heads": kv_heads, "head_dim": head_dim}


def _kv_heads(settings: Settings, family: Family, heads: int) -> int:
    # Some families share one head by `multi_query`, or have as many as query heads.
    if "multi_query" in family.defaults and not settings.flag("new_decoder_architecture"):
        return 1 if settings.flag("multi_query") else heads
    stated = settings.optional_size("num_key_value_heads")
    if not family.grouped_queries and stated not in (None, heads):
        raise settings.error("num_key_value_heads", f"is {stated}; this family has as many as query heads, {heads}")
    return stated or heads


def _experts(settings: Settings, family: Family, layers: int) -> tuple[ExpertSizes | None, tuple[bool, ...]]:
    """Sizes of the experts, None where there are none, and which layers are mixtures of them."""
    rule, none = family.experts, (None, (False,) * layers)
    if rule is None:
        return none
    count = settings.optional_size("num_experts", least=0) or 0
    mixed = _expert_layers(settings, rule.layers, layers) if count else [False]
    if not any(mixed):
        if rule.layers == "all":
            raise settings.error("num_experts", f"is {count}; every layer of this family has at least one")
        return none
    size = settings.size(rule.size)
    shared = 0 if rule.shared is None else settings.optional_size(rule.shared, least=0) or 0
    if rule.shared == "n_shared_experts":
        shared *= size
    chosen = settings.size("num_experts_per_tok")
    if chosen > count:
        raise settings.error("num_experts_per_tok", f"is {chosen}; it must be at most the {count} experts")
    sizes = settings.fitted(
        ExpertSizes,
        num_experts=count,
        per_token=chosen,
        inner_size=size,
        shared_size=shared,
        shared_gated=rule.shared_gate and shared > 0,
        correction_bias=rule.correction_bias,
        router_bias=rule.biases,
        expert_biases=rule.biases,
    )
    return sizes, tuple(mixed)


def _expert_layers(settings: Settings, rule: str, layers: int) -> list[bool]:
    if rule == "all":
        return [True] * layers
    if rule == "every_nth":
        step = settings.size("decoder_sparse_step")
        dense = settings.layer_numbers("mlp_only_layers")
        return [(number + 1) % step == 0 and number not in dense for number in range(layers)]
    if rule == "frequency":
        return settings.marks("moe_layer_freq")
    if rule == "interval":
        first, step = settings.size("moe_layer_start_index", least=0), settings.size("moe_layer_interval")
        last = layers if settings.get("moe_layer_end_index") == -1 else settings.size("moe_layer_end_index", least=0)
        return [(number + 1) % step == 0 and first <= number <= last for number in range(layers)]
    kinds = settings.names("mlp_layer_types")
    if kinds is None:
        dense_layers = settings.optional_size("first_k_dense_replace", least=0) or 0
        return [number >= dense_layers for number in range(layers)]
    if not set(kinds) <= {"dense", "sparse"}:
        raise settings.error("mlp_layer_types", f"is {shown(kinds)}; each entry must be 'dense' or 'sparse'")
    return [kind == "sparse" for kind in kinds]


def _linear_sizes(settings: Settings, family: Family, hidden: int) -> LinearSizes:
    if family.convolutions:
        return LinearSizes(0, hidden, 0, 1, settings.size("conv_L_cache"))
    return settings.fitted(LinearSizes, **{name: settings.size(key) for name, key in LINEAR_KEYS.items()})


def _linear_layers(settings: Settings, family: Family, layers: int) -> tuple[bool, ...]:
    """Whether each layer has linear attention."""
    if not family.linear:
        return (False,) * layers
    kinds, listed = settings.names("layer_types"), family.convolutions and settings.get("full_attn_idxs") is not None
    attending = settings.layer_numbers("full_attn_idxs") if listed else set(range(layers))
    if kinds is None and family.convolutions:
        linear = tuple(layer not in attending for layer in range(layers))
    elif kinds is None:
        every = settings.size("full_attention_interval")
        linear = tuple((layer + 1) % every != 0 for layer in range(layers))
    else:
        linear = tuple(kind == family.linear_kind for kind in kinds)
        if listed and linear != tuple(layer not in attending for layer in range(layers)):
            raise settings.error("full_attn_idxs", f"is {sorted(attending)}; layer_types has other layers that attend")
    if all(linear):
        raise EntryError(
            f"{settings.prefix}all {layers} layers have linear attention; one at least must attend to a cache"
        )
    return linear


def _windows(settings: Settings, family: Family, layers: int) -> tuple[int | None, ...]:
    """Tokens that each layer sees, itself included; None: all."""
    kinds = settings.names("layer_types")
    kinds = kinds and [_FULL if kind == "attention" else kind for kind in kinds]  # Granite 4's word
    if kinds is None:
        sliding = _sliding(settings, family, layers)
    else:
        allowed = (_FULL, family.linear_kind if family.linear else _SLIDING)
        allowed += (_SELECTED,) if "index_topk" in family.announced else ()
        others = sorted(set(kinds) - set(allowed))
        if others:
            raise NotImplementedError(
                f"{settings.prefix}layer_types has {shown(others)}, which are not modelled; allowed: {', '.join(allowed)}"
            )
        sliding = [kind == _SLIDING for kind in kinds]
    window = settings.size("sliding_window") if any(sliding) else None
    return tuple(window if slides else None for slides in sliding)


def _sliding(settings: Settings, family: Family, layers: int) -> list[bool]:
    rule = family.windows
    if rule is None or settings.get("sliding_window") is None:
        return [False] * layers
    if rule.enabled is not None and not settings.flag(rule.enabled):
        return [False] * layers
    if rule.pattern in ("all", "listed"):
        return [True] * layers
    if rule.pattern == "all_behind_every_nth":
        period = settings.size("sliding_window_pattern")
        return [layer % period != 0 for layer in range(layers)]
    if rule.pattern == "all_but_every_nth":
        period = settings.size("sliding_window_pattern")
        return [(layer + 1) % period != 0 for layer in range(layers)]
    first = settings.size("max_window_layers", least=0)
    if rule.pattern == "from_layer":
        return [layer >= first for layer in range(layers)]
    return [layer <= first - 1 and layer % 2 == 0 for layer in range(layers)]
