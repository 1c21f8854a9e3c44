"""What families have that no column of the table says: what their `beyond` reads, and defaults that follow from other keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from hwmodels.networks.settings import Settings, shown
from hwmodels.networks.spec import LinearSizes, NetworkSpec

__all__ = [
    "deepseek_index",
    "dense_width",
    "falcon_norms",
    "gemma4",
    "gemma4_norms",
    "granite_layers",
    "lfm2_layers",
    "llama4",
    "mimo_v2",
    "minimax_m3",
    "nemotron_h",
    "number_of_blocks",
    "rounded_width",
    "searched",
    "shared_width",
    "stablelm_norms",
    "with_xielu",
]


def _selecting(
    spec: NetworkSpec, indexes: tuple[bool, ...], *, heads: int, dim: int, tokens: int, norms: int, layers: int
) -> NetworkSpec:
    """Args: norms: stored elements of the index's norms in a layer. layers: that attend to selected tokens."""
    sizes = {"index_heads": heads, "index_head_dim": dim, "selected_tokens": tokens, "num_selecting_layers": layers}
    beyond = {**spec.beyond, **sizes, "vectors": norms * sum(indexes)}
    return dataclasses.replace(spec, indexes=indexes, beyond=beyond)


def deepseek_index(settings: Settings, spec: NetworkSpec) -> NetworkSpec:
    """DeepSeek Sparse Attention. GLM-5.2 scores in some layers only, which the next ones follow.

    Source: DeepSeek-V3.2, arXiv:2512.02556, Section 2.1.
    """
    kinds, layers = settings.names("indexer_types"), spec.num_layers
    every = settings.optional_size("index_topk_freq") or 1
    behind = settings.optional_size("index_skip_topk_offset", least=0) or 0
    if kinds is None:
        if settings.get("index_topk_pattern") is not None:
            raise settings.error("index_topk_pattern", "is not read; it must be null, beside indexer_types")
        indexes = tuple(max(layer + 1 - behind, 0) % every == 0 for layer in range(layers))
    elif set(kinds) <= {"full", "shared"}:
        indexes = tuple(kind == "full" for kind in kinds)
    else:
        raise settings.error("indexer_types", f"is {shown(kinds)}; each entry must be 'full' or 'shared'")
    heads, dim, tokens = (settings.size(f"index_{key}") for key in ("n_heads", "head_dim", "topk"))
    return _selecting(spec, indexes, heads=heads, dim=dim, tokens=tokens, norms=2 * dim, layers=layers)


def minimax_m3(settings: Settings, spec: NetworkSpec) -> NetworkSpec:
    """Blocks of tokens are selected; the first layers are dense, with a width of their own."""
    inside = settings.get("sparse_attention_config")
    if not isinstance(inside, Mapping):
        raise settings.error("sparse_attention_config", f"is {shown(inside)}; it must be an object")
    inner = Settings(
        {**inside, "num_hidden_layers": spec.num_layers}, {}, {}, f"{settings.prefix}sparse_attention_config"
    )
    heads, dim = (inner.size(f"sparse_{key}") for key in ("num_index_heads", "index_dim"))
    tokens = inner.size("sparse_topk_blocks") * inner.size("sparse_block_size")
    indexes = tuple(inner.marks("sparse_attention_freq"))
    settings.read.add("first_k_dense_replace")  # moe_layer_freq says it layer by layer
    spec = dataclasses.replace(spec, intermediate_size=settings.size("dense_intermediate_size"))
    return _selecting(spec, indexes, heads=heads, dim=dim, tokens=tokens, norms=2 * dim, layers=sum(indexes))


def mimo_v2(settings: Settings, spec: NetworkSpec) -> NetworkSpec:
    """Layers with a window have key-value heads of another number, and sinks; values are narrower than keys."""
    listed = settings.get("hybrid_layer_pattern") is None  # in layer_types then
    sliding = [window is not None for window in spec.windows] if listed else settings.marks("hybrid_layer_pattern")
    window = settings.size("sliding_window")
    size = lambda prefix, key: settings.size(f"{prefix}{key}")
    value = lambda prefix: settings.optional_size(f"{prefix}v_head_dim") or size(prefix, "head_dim")
    if value("swa_") * size("", "head_dim") != value("") * size("swa_", "head_dim"):
        raise settings.error("swa_v_head_dim", "by swa_head_dim is another ratio than v_head_dim by head_dim")
    narrow = size("swa_", "head_dim") / size("", "head_dim")
    sinks = any(settings.flag(f"add_{kind}_attention_sink_bias") for kind in ("swa", "full"))
    return dataclasses.replace(
        spec,
        windows=tuple(window if slides else None for slides in sliding),
        beyond={
            "v_head_dim": value(""),
            "window_query_ratio": narrow * size("swa_", "num_attention_heads") / spec.num_heads,
            "window_kv_ratio": narrow * size("swa_", "num_key_value_heads") / spec.num_kv_heads,
            "vectors": sinks * sum(sliding) * size("swa_", "num_attention_heads"),
        },
    )


def gemma4(settings: Settings, spec: NetworkSpec) -> NetworkSpec:
    """Layers without a window have heads of another width; the dense network stands beside the experts."""
    sliding, hidden = sum(window is not None for window in spec.windows), spec.hidden_size
    wide = settings.optional_size("global_head_dim") or spec.head_dim
    own = settings.optional_size("num_global_key_value_heads")
    shared, notes = settings.flag("attention_k_eq_v"), []
    kv_heads = own if shared and own else spec.num_kv_heads
    settings.read.update(("use_bidirectional_attention", "vocab_size_per_layer_input"))  # of images; of what is off
    if shared:
        notes.append(
            "attention_k_eq_v: layers without a window are priced with a projection of values, which they lack"
        )
    # A factor of each layer; of experts scales of the router's input and of each expert. Narrow heads have shorter norms.
    vectors = spec.num_layers + sum(spec.expert_layers) * (hidden + (spec.experts.num_experts if spec.experts else 0))
    if sliding == spec.num_layers:
        return dataclasses.replace(spec, beyond={"vectors": vectors})
    vectors -= 2 * (wide - spec.head_dim) * sliding
    beyond = {
        "window_query_ratio": spec.head_dim / wide,
        "window_kv_ratio": spec.num_kv_heads * spec.head_dim / (kv_heads * wide),
    }
    beyond = {**(beyond if sliding else {}), "vectors": vectors}
    return dataclasses.replace(spec, head_dim=wide, num_kv_heads=kv_heads, beyond=beyond, notes=tuple(notes))


def llama4(settings: Settings, spec: NetworkSpec) -> NetworkSpec:
    """Chunks in the layers that rotate; a dense network of another width between the experts'."""
    chunk, layers = settings.optional_size("attention_chunk_size"), spec.num_layers
    rotated = settings.get("no_rope_layers") or [int((layer + 1) % 4 != 0) for layer in range(layers)]
    settings.raw = {**settings.raw, "no_rope_layers": rotated}
    kinds = settings.names("layer_types")
    chunked = settings.marks("no_rope_layers") if kinds is None else [kind == "chunked_attention" for kind in kinds]
    spec = dataclasses.replace(
        spec,
        intermediate_size=settings.size("intermediate_size_mlp"),
        windows=tuple(chunk if cut else None for cut in chunked),
    )
    note = f"attention_chunk_size: chunks of {chunk} tokens are priced as windows of as many, which are never shorter"
    return spec if chunk is None else dataclasses.replace(spec, notes=(note,))


#: Nemotron-H's letters of its layers, and what newer files call them.
_BLOCKS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def _blocks(settings: Settings) -> list[str]:
    pattern = settings.get("hybrid_override_pattern")
    stated = settings.get("layers_block_type") if pattern is None else pattern
    kinds = [_BLOCKS.get(sign, sign) for sign in stated] if isinstance(stated, str | list) else []
    if not kinds or any(kind not in _BLOCKS.values() for kind in kinds):
        raise settings.error(
            "layers_block_type", f"is {shown(stated)}; each must be one of {', '.join(_BLOCKS.values())}"
        )
    return kinds


def nemotron_h(settings: Settings, spec: NetworkSpec) -> NetworkSpec:
    """Layers of one block each: Mamba-2, attention, a feed-forward network or a mixture of experts.

    Source: Dao and Gu 2024, arXiv:2405.21060, Section 7, with the projections of Nemotron-H's release.
    """
    kinds = _blocks(settings)
    if len(kinds) != spec.num_layers:
        raise settings.error("num_hidden_layers", f"is {spec.num_layers}; there are {len(kinds)} blocks")
    heads, width = settings.size("mamba_num_heads"), settings.size("mamba_head_dim")
    linear = settings.fitted(
        LinearSizes,
        key_heads=settings.size("n_groups"),
        value_heads=heads,
        key_dim=settings.size("ssm_state_size"),
        value_dim=width,
        conv_tokens=settings.size("conv_kernel"),
    )
    # The inner width is the heads'; matrices are kept in 32 bits unless a file says otherwise.
    settings.read.update(("expand", "chunk_size"))
    kept, known = settings.get("mamba_ssm_cache_dtype"), (None, "float32")
    notes = () if kept in known else (f"mamba_ssm_cache_dtype is {shown(kept)}: states are priced in 32 bits",)
    are = lambda *which: tuple(kind in which for kind in kinds)
    # Beside what gated delta nets have: biases of the convolution, a scale of each value, a third number of each head.
    vectors = linear.convolved * settings.flag("use_conv_bias") + linear.values - width + heads
    return dataclasses.replace(
        spec,
        linear=linear if any(are("mamba")) else None,
        linear_layers=are("mamba"),
        expert_layers=are("moe"),
        attends=are("mamba", "attention"),
        feeds=are("mlp", "moe"),
        beyond={
            **({"linear_rates": 1.0} if any(are("mamba")) else {}),
            "expert_hidden_size": settings.optional_size("moe_latent_size") or 0,
            "vectors": vectors * kinds.count("mamba"),
        },
        notes=notes,
    )


def searched(settings: Settings, spec: NetworkSpec) -> NetworkSpec:
    """Layers without attention, and feed-forward networks of several widths.

    Source: Puzzle, arXiv:2411.19146; widths as in the configuration of DeciLM in the release.
    """
    blocks = settings.get("block_configs")
    if not isinstance(blocks, list) or len(blocks) != spec.num_layers:
        raise settings.error("block_configs", f"is {shown(blocks)}; it must be a list of {spec.num_layers} objects")
    groups, widths = [], []
    for block in blocks:
        attention, feed_forward = ({"no_op": False} | dict(block[part]) for part in ("attention", "ffn"))
        odd = [
            key
            for part in (attention, feed_forward)
            for key, value in part.items()
            if value and key not in ("no_op", "n_heads_in_group", "ffn_mult")
        ]
        if odd:
            raise NotImplementedError(f"{settings.prefix}block_configs with {', '.join(odd)} is not modelled")
        groups.append(None if attention["no_op"] else attention["n_heads_in_group"])
        width = 0 if feed_forward["no_op"] else int(2 * feed_forward["ffn_mult"] * spec.hidden_size / 3)
        widths.append(-(-width // 256) * 256)
    if len(sharing := {group for group in groups if group}) != 1:
        raise NotImplementedError(f"{settings.prefix}block_configs with several n_heads_in_group is not modelled")
    feeds = tuple(width > 0 for width in widths)
    mean = sum(widths) / sum(feeds)
    return dataclasses.replace(
        spec,
        num_kv_heads=spec.num_heads // sharing.pop(),
        attends=tuple(group is not None for group in groups),
        feeds=feeds,
        beyond={"intermediate_size": mean},
        notes=(
            f"block_configs: feed-forward networks of {len(set(widths))} widths are priced at their mean, {mean:g}",
        ),
    )


def granite_layers(settings: Settings) -> None:
    """Granite 4 without `layer_types`."""
    raise NotImplementedError(
        f"{settings.prefix}layer_types is missing: all layers are state-space ones then; allowed is a list that says "
        "'attention' of each"
    )


def with_xielu(settings: Settings, spec: NetworkSpec) -> NetworkSpec:
    """Apertus."""
    return dataclasses.replace(spec, xielu=True)


def shared_width(settings: Settings) -> int:
    """Width of a head's values where a file of MiniCPM3 has none, as in its release."""
    hidden, heads = settings.size("hidden_size"), settings.size("num_attention_heads")
    if hidden % heads:
        raise settings.error(
            "hidden_size", f"is {hidden}, which {heads} heads do not divide; it must be a multiple of them"
        )
    return hidden // heads


def falcon_norms(settings: Settings) -> int:
    """Norms per layer."""
    if not settings.flag("parallel_attn"):
        return 2
    stated = settings.optional_size("num_ln_in_parallel_attn")
    return 2 if stated == 2 or (stated is None and settings.flag("new_decoder_architecture")) else 1


def rounded_width(settings: Settings, spec: NetworkSpec) -> NetworkSpec:
    """LFM2's feed-forward networks have two thirds of the width that files state, rounded up, unless they say otherwise."""
    if not settings.flag("block_auto_adjust_ff_dim"):
        return spec
    width = int(2 * spec.intermediate_size / 3)
    if settings.get("block_ffn_dim_multiplier") is not None:
        multiple = settings.size("block_multiple_of")
        width = -(-int(settings.positive("block_ffn_dim_multiplier") * width) // multiple) * multiple
    if width < 1:
        raise settings.error("intermediate_size", f"is {spec.intermediate_size}; two thirds of it are less than 1")
    return dataclasses.replace(spec, intermediate_size=width)


def lfm2_layers(settings: Settings) -> None:
    """LFM2 with experts and without `layer_types`."""
    raise settings.error("layer_types", "is missing; it must say 'conv' or 'full_attention' of each layer")


def dense_width(settings: Settings) -> int:
    """Width of Hunyuan's experts where a file states none."""
    return settings.size("intermediate_size")


def attending_everywhere(settings: Settings) -> list[str]:
    """Mellum's layers where a file does not list them: its window is then of no layer."""
    return ["full_attention"] * settings.size("num_hidden_layers")


def number_of_blocks(settings: Settings) -> int:
    """Layers of Nemotron-H."""
    return len(_blocks(settings))


def stablelm_norms(settings: Settings) -> int:
    """Norms per layer."""
    return 1 if settings.flag("use_parallel_residual") else 2


def gemma4_norms(settings: Settings) -> int:
    """Norms per layer."""
    return 7 if settings.get("enable_moe_block") else 4
