"""The config.json of a network that runs here, in the words of a family."""

from __future__ import annotations

from typing import Any

from hwmodels.networks.family import Family, RouterRule, Setting
from hwmodels.networks.rope import written_rope
from hwmodels.networks.running import running_row
from hwmodels.networks.sizes import LINEAR_KEYS
from hwmodels.networks.spec import ExpertSizes, NetworkSpec

__all__ = ["written_config"]


def written_config(spec: NetworkSpec, family: Family, *, max_positions: int) -> dict[str, Any]:
    """What config.json says of a network; what the family cannot say is left out.

    Args:
        max_positions: longest text that the network is meant for.
    """
    row = running_row(family)
    usual = {
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        **({"num_key_value_heads": spec.num_kv_heads} if family.grouped_queries else {}),
        **({"head_dim": spec.head_dim} if family.free_head_dim else {}),
        "tie_word_embeddings": spec.tie_embeddings,
        "max_position_embeddings": max_positions,
        "torch_dtype": "bfloat16",
        **_experts(spec, family),
        **_latent(spec),
    }
    if spec.learned_positions is not None:
        usual["max_position_embeddings"] = spec.learned_positions.positions
    switches = ((family.qkv_bias, spec.qkv_bias), (family.o_bias, spec.o_bias), (family.ffn_bias, spec.ffn_bias))
    if family.qk_norm.startswith("optional"):
        switches += (("use_qk_norm", spec.qk_norm),)
    values = spec.computation or {}
    computed = {
        how.key: _stated(values[name], how) for name, how in row.computation.items() if isinstance(how, Setting)
    }
    fixed = {**family.must_equal, **row.must_equal}
    spelled = {family.spellings.get(key, (key,))[-1]: value for key, value in usual.items()}
    return {
        "architectures": [row.architecture],
        "model_type": family.name,
        **computed,
        **spelled,
        **({} if row.rotary is None else written_rope(spec, row.rotary, family.defaults)),
        **_layers(spec, family),
        **{switch: value for switch, value in switches if isinstance(switch, str)},
        **{key: value for key, value in fixed.items() if not isinstance(value, Setting)},
        **{k: spelled[v.key] for k, v in fixed.items() if isinstance(v, Setting) and v.key in spelled},
    }


def _stated(value: Any, how: Setting) -> Any:
    """The key's value of which the network's number is a power."""
    if how.power == 1 or value is None:
        return value
    # Whole numbers come back as such, for a tool that takes no others.
    stated = float(f"{value ** (1 / how.power):.14g}")
    return int(stated) if stated.is_integer() else stated


def _layers(spec: NetworkSpec, family: Family) -> dict[str, Any]:
    """Keys that say which layers have a window, or linear attention; all windows of such a network are of one length."""
    raw: dict[str, Any] = {}
    if family.linear:
        sizes = {} if spec.linear is None else {key: getattr(spec.linear, name) for name, key in LINEAR_KEYS.items()}
        kinds = {True: family.linear_kind, False: "full_attention"}
        if family.convolutions:
            sizes = {} if spec.linear is None else {"conv_L_cache": spec.linear.conv_tokens}
            sizes |= {"block_auto_adjust_ff_dim": False} if "block_auto_adjust_ff_dim" in family.defaults else {}
        raw = sizes | {"layer_types": [kinds[linear] for linear in spec.linear_layers]}
    rule = family.windows
    if rule is None:
        return raw
    lengths = [window for window in spec.windows if window is not None]
    raw["sliding_window"] = lengths[0] if lengths else None
    if rule.enabled is not None:
        raw[rule.enabled] = bool(lengths)
    if rule.pattern != "all" and (lengths or rule.enabled is None):
        kinds = {True: "sliding_attention", False: "full_attention"}
        raw["layer_types"] = [kinds[window is not None] for window in spec.windows]
    return raw


def _latent(spec: NetworkSpec) -> dict[str, Any]:
    latent = spec.latent
    if latent is None:
        return {}
    return {
        "kv_lora_rank": latent.kv_rank,
        "q_lora_rank": latent.query_rank,
        "qk_nope_head_dim": spec.head_dim,
        "qk_rope_head_dim": latent.rope_head_dim,
        "v_head_dim": latent.value_head_dim,
        "num_key_value_heads": spec.num_heads,
    }


def _experts(spec: NetworkSpec, family: Family) -> dict[str, Any]:
    keys, mixed = family.experts, spec.expert_layers
    if keys is None:
        return {}
    places = [number for number, is_mixed in enumerate(mixed) if is_mixed] or [len(mixed)]
    layers: dict[str, Any] = {
        "all": {},
        "every_nth": {
            "decoder_sparse_step": 1,
            "mlp_only_layers": [n for n, is_mixed in enumerate(mixed) if not is_mixed],
        },
        "listed": {"mlp_layer_types": ["sparse" if is_mixed else "dense" for is_mixed in mixed]},
        "after_dense": {"first_k_dense_replace": places[0]},
        "interval": {
            "moe_layer_start_index": places[0],
            "moe_layer_end_index": places[-1],
            "moe_layer_interval": places[1] - places[0] if len(places) > 1 else 1,
        },
    }[keys.layers]
    sizes = spec.experts
    if sizes is None:
        return layers
    shared = {} if keys.shared is None else {keys.shared: sizes.shared_size}
    if keys.shared == "n_shared_experts":
        shared = {keys.shared: sizes.shared_size // sizes.inner_size}
    own = {"num_experts": sizes.num_experts, "num_experts_per_tok": sizes.per_token, keys.size: sizes.inner_size}
    own |= {} if keys.clamp is None else {keys.clamp: sizes.clamp}
    return layers | own | shared | _router(sizes, family.running.router if family.running else None)


def _router(sizes: ExpertSizes, rule: RouterRule | None) -> dict[str, Any]:
    if rule is None:
        return {}
    settings: dict[str, Any] = {}
    if isinstance(rule.renormalised, str):
        settings[rule.renormalised] = sizes.renormalised
    if rule.scale is not None:
        settings[rule.scale] = sizes.scale
    if rule.grouped_by is not None:
        key, whole, grouped = rule.grouped_by
        settings[key] = grouped if sizes.groups > 1 else whole
    if rule.groups is not None:
        settings |= zip(rule.groups, (sizes.groups, sizes.groups_per_token), strict=True)
    return settings
