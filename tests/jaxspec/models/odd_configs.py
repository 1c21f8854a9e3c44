"""Odd configurations of every family that runs, drawn from a seed, in both spellings of the rotary settings."""

import numpy as np
from odd_latent_configs import deepseek_v2, deepseek_v3, glm4_moe_lite, gpt_oss, youtu

#: Families that rotate a part of each head.
_PARTIAL = ("glm", "glm4", "glm4_moe", "phi3", "minimax_m2", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next")

SCALINGS = ("none", "none", "linear", "dynamic", "yarn", "longrope", "llama3")


def odd_config(family, seed):
    """A config.json as dictionary; sizes do not divide each other where they need not."""
    rng = np.random.default_rng([seed, *family.encode()])
    pick = lambda *options: options[rng.integers(len(options))]
    kv_heads = pick(1, 2, 3)
    heads = kv_heads * pick(1, 2, 3)
    layers, head_dim = pick(1, 2, 3, 4, 5), pick(6, 8, 10, 14)
    raw = {
        "model_type": family,
        "vocab_size": int(rng.integers(30, 70)),
        "hidden_size": heads * pick(4, 6, 8),
        "intermediate_size": int(rng.integers(5, 50)),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "tie_word_embeddings": pick(True, False),
        "max_position_embeddings": pick(20, 64, 100),
        "rms_norm_eps": pick(1e-6, 1e-4, 3e-3),
        "hidden_act": pick("silu", "silu", "gelu", "relu", "gelu_pytorch_tanh"),
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    granites = ("granite", "granitemoe", "granitemoeshared", "granitemoehybrid")
    if family not in ("phi3", "smollm3", "olmo2", "olmo3", "olmoe", "opt", "qwen2_moe", "cohere2", "lfm2", *granites):
        raw["head_dim"] = head_dim
    else:
        head_dim = raw["hidden_size"] // heads
    if family not in (
        "mistral",
        "ministral3",
        "mixtral",
        "qwen2",
        "qwen2_moe",
        "phi3",
        "minimax_m2",
        "ernie4_5",
        "exaone4",
    ):
        raw["attention_bias"] = pick(True, False)
    if family in ("llama", "granite", "smollm3", "seed_oss"):
        raw["mlp_bias"] = pick(True, False)
    sections = {
        "apertus": lambda raw, pick: {"hidden_act": "xielu"},
        "opt": opt,
        "cohere": lambda raw, pick: cohere(raw, pick) | {"use_qk_norm": pick(True, False)},
        "cohere2": lambda raw, pick: cohere(raw, pick) | some_windows(raw, pick),
        "gemma2": gemma,
        "gemma3_text": gemma,
        "ernie4_5_moe": ernie4_5_moe,
        "lfm2": lfm2,
        "lfm2_moe": lfm2_moe,
        "hunyuan_v1_moe": hunyuan_v1_moe,
        "granite": granite,
        "granitemoe": granitemoe,
        "granitemoeshared": lambda raw, pick: granitemoe(raw, pick) | {"shared_intermediate_size": pick(7, 12)},
        "granitemoehybrid": granitemoehybrid,
        "smollm3": smollm3,
        "mistral": all_windows,
        "ministral3": all_windows,
        "phi3": all_windows,
        "qwen2": late_windows,
        "qwen3": late_windows,
        "mixtral": mixtral,
        "qwen2_moe": qwen2_moe,
        "qwen3_moe": qwen3_moe,
        "glm4_moe": glm4_moe,
        "deepseek_v2": deepseek_v2,
        "deepseek_v3": deepseek_v3,
        "glm4_moe_lite": glm4_moe_lite,
        "gpt_oss": gpt_oss,
        "youtu": youtu,
        "olmo3": some_windows,
        "exaone4": exaone4,
        "seed_oss": lambda raw, pick: {"attention_out_bias": pick(True, False)},
        "ernie4_5": lambda raw, pick: {"use_bias": pick(True, False)},
        "olmoe": olmoe,
        "minimax_m2": minimax_m2,
        "dots1": dots1,
        "qwen3_5_text": qwen3_5,
        "qwen3_5_moe_text": qwen3_5_moe,
        "qwen3_next": qwen3_next,
    }
    if family in sections:
        raw |= sections[family](raw, pick)
        head_dim = raw.get("qk_rope_head_dim", head_dim)
    return raw if family == "opt" else raw | rotation(raw, head_dim, pick)


def qwen3_5(raw, pick):
    layers, key_heads = raw["num_hidden_layers"], pick(1, 2, 3)
    kinds = [pick("linear_attention", "linear_attention", "full_attention") for _ in range(layers)]
    kinds[pick(*range(layers))] = "full_attention"
    return {
        "linear_num_key_heads": key_heads,
        "linear_num_value_heads": key_heads * pick(1, 2, 3),
        "linear_key_head_dim": pick(3, 4, 8),
        "linear_value_head_dim": pick(2, 5, 8),
        "linear_conv_kernel_dim": pick(2, 3, 4),
        # With a smaller one transformers, whose rule is in float32, norms its own errors where a head reads next to nothing.
        "rms_norm_eps": pick(1e-3, 1e-2),
        **pick({"layer_types": kinds}, {"full_attention_interval": pick(*range(1, layers + 1))}),
    }


def qwen3_5_moe(raw, pick):
    experts = pick(3, 6, 9)
    return qwen3_5(raw, pick) | {
        "num_experts": experts,
        "num_experts_per_tok": pick(1, 3, experts),
        "moe_intermediate_size": pick(3, 8, 21),
        "shared_expert_intermediate_size": pick(1, 6, 13),
    }


def qwen3_next(raw, pick):
    dense = [{}, {"decoder_sparse_step": 2}, {"mlp_only_layers": [0]}]
    return qwen3_5_moe(raw, pick) | {"norm_topk_prob": pick(True, False)} | pick(*dense)


def opt(raw, pick):
    for key in ("intermediate_size", "num_key_value_heads", "rms_norm_eps", "hidden_act", "attention_bias"):
        del raw[key]
    hidden = raw["num_attention_heads"] * pick(3, 5, 8)
    return {
        "hidden_size": hidden,
        "word_embed_proj_dim": pick(hidden, None),
        "ffn_dim": pick(7, 20, 41),
        "max_position_embeddings": pick(33, 40, 64),
        "enable_bias": pick(True, False),
        "activation_function": pick("relu", "gelu"),
    }


def gemma(raw, pick):
    layers = raw["num_hidden_layers"]
    kinds = [pick("full_attention", "sliding_attention") for _ in range(layers)]
    return {
        "hidden_activation": raw.pop("hidden_act"),
        "query_pre_attn_scalar": pick(5, 16, 24),
        "sliding_window": pick(3, 8, 40),
        "attn_logit_softcapping": pick(None, 1.5, 50.0) if raw["model_type"] == "gemma2" else None,
        "final_logit_softcapping": pick(None, 2.0, 30.0),
        **pick({}, {"layer_types": kinds}),
    }


def cohere(raw, pick):
    return {"layer_norm_eps": raw.pop("rms_norm_eps"), "logit_scale": pick(0.0625, 0.3, 1.0)}


def some_windows(raw, pick):
    kinds = [pick("full_attention", "sliding_attention") for _ in range(raw["num_hidden_layers"])]
    return {"sliding_window": pick(3, 8, 40), **pick({}, {"layer_types": kinds})}


def exaone4(raw, pick):
    layers = raw["num_hidden_layers"]
    kinds = [pick("full_attention", "sliding_attention") for _ in range(layers)]
    # transformers divides by the pattern, and makes it 0 where there is no window.
    whole = {"sliding_window": None, "layer_types": ["full_attention"] * layers}
    return pick(whole, {"sliding_window": pick(3, 8)}, {"sliding_window": pick(3, 8), "layer_types": kinds})


def olmoe(raw, pick):
    experts = pick(2, 3, 5, 8)
    own = {"num_experts": experts, "num_experts_per_tok": pick(1, 2, experts)}
    return own | pick({}, {"norm_topk_prob": True, "clip_qkv": None})


def minimax_m2(raw, pick):
    experts = pick(2, 3, 5, 8)
    own = {"num_local_experts": experts, "num_experts_per_tok": pick(1, 2, experts)}
    return own | pick({}, {"scoring_func": "sigmoid", "use_qk_norm": True, "shared_intermediate_size": 0})


def dots1(raw, pick):
    window = {"sliding_window": pick(4, 11), "max_window_layers": pick(0, 1, raw["num_hidden_layers"])}
    found = glm4_moe(raw, pick) | pick({}, {"sliding_window": None}, window)
    del found["use_qk_norm"]
    return found


def ernie4_5_moe(raw, pick):
    layers, experts = raw["num_hidden_layers"], pick(3, 6, 9)
    raw.pop("attention_bias", None)
    return {
        "moe_num_experts": experts,
        "moe_k": pick(1, 3, experts),
        "moe_num_shared_experts": pick(0, 1, 2),
        "moe_intermediate_size": pick(3, 8),
        **pick({}, {"moe_layer_interval": 2}, {"moe_layer_start_index": 0}, {"moe_layer_end_index": layers // 2}),
    }


def hunyuan_v1_moe(raw, pick):
    experts, layers = pick(2, 3, 5), raw["num_hidden_layers"]
    chosen = pick(1, 2, experts)
    return {"num_experts": experts, pick("moe_topk", "num_experts_per_tok"): pick(chosen, [chosen] * layers)}


def lfm2(raw, pick):
    layers = raw["num_hidden_layers"]
    attending = sorted({pick(*range(layers)), pick(*range(layers))})
    kinds = ["full_attention" if layer in attending else "conv" for layer in range(layers)]
    width = {"block_auto_adjust_ff_dim": pick(True, False), "block_multiple_of": pick(4, 7)}
    width |= {pick("intermediate_size", "block_ff_dim"): 3 + raw.pop("intermediate_size")}
    width |= {"block_ffn_dim_multiplier": pick(0.8, 1.0, 1.3)}
    listed = pick({"full_attn_idxs": attending}, {"layer_types": kinds}, {})
    return {"norm_eps": raw.pop("rms_norm_eps"), "conv_L_cache": pick(2, 3, 4), **width, **listed}


def lfm2_moe(raw, pick):
    layers, experts = raw["num_hidden_layers"], pick(3, 6, 9)
    kinds = [pick("conv", "conv", "full_attention") for _ in range(layers)]
    kinds[pick(*range(layers))] = "full_attention"
    return {
        "norm_eps": raw.pop("rms_norm_eps"),
        "conv_L_cache": pick(2, 3, 4),
        "layer_types": kinds,
        "num_dense_layers": pick(0, 1, layers),
        "num_experts": experts,
        "num_experts_per_tok": pick(1, 3, experts),
        "moe_intermediate_size": pick(3, 8),
        "norm_topk_prob": pick(True, False),
        "routed_scaling_factor": pick(1.0, 2.5),
    }


def granite(raw, pick):
    return {
        "embedding_multiplier": pick(1.0, 12.0),
        "attention_multiplier": pick(0.1, 0.4),
        "residual_multiplier": pick(0.22, 1.0),
        "logits_scaling": pick(1.0, 8.0, 0.3),
    }


def granitemoehybrid(raw, pick):
    found = {"layer_types": ["full_attention"] * raw["num_hidden_layers"], "position_embedding_type": "rope"}
    return (
        granite(raw, pick)
        | found
        | {"mamba_n_heads": 1, "num_local_experts": 0, "shared_intermediate_size": raw["intermediate_size"]}
    )


def granitemoe(raw, pick):
    experts = pick(2, 3, 5, 8)
    return granite(raw, pick) | {"num_local_experts": experts, "num_experts_per_tok": pick(1, 2, experts)}


def qwen2_moe(raw, pick):
    experts = pick(3, 6, 9)
    return {
        "num_experts": experts,
        "num_experts_per_tok": pick(1, 3, experts),
        "moe_intermediate_size": pick(3, 8),
        "shared_expert_intermediate_size": pick(5, 9),
        **pick({}, {"norm_topk_prob": True}, {"decoder_sparse_step": 2}, {"mlp_only_layers": [0]}),
    }


def smollm3(raw, pick):
    layers = raw["num_hidden_layers"]
    return pick({}, {"no_rope_layer_interval": pick(2, 3)}, {"no_rope_layers": [pick(0, 1) for _ in range(layers)]})


def all_windows(raw, pick):
    return {"sliding_window": pick(None, 2, 9, 60)}


def mixtral(raw, pick):
    experts = pick(2, 3, 5, 8)
    own = {"num_local_experts": experts, "num_experts_per_tok": pick(1, 2, experts)}
    return own | all_windows(raw, pick)


def qwen3_moe(raw, pick):
    experts, layers = pick(3, 6, 9, 17), raw["num_hidden_layers"]
    return {
        pick("num_experts", "num_local_experts"): experts,
        "num_experts_per_tok": pick(1, 3, experts),
        "moe_intermediate_size": pick(3, 8, 21),
        "norm_topk_prob": pick(True, False),
        **pick({}, {"decoder_sparse_step": 2}, {"mlp_only_layers": [0]}, {"mlp_only_layers": list(range(layers))}),
        **pick({}, {"use_sliding_window": True, "sliding_window": pick(4, 11)}, {"sliding_window": 5}),
    }


def glm4_moe(raw, pick):
    groups = pick(1, 1, 2, 3)
    return {
        "n_routed_experts": groups * pick(2, 4, 5),
        "n_group": groups,
        "topk_group": pick(1, groups),
        "num_experts_per_tok": pick(1, 2),
        "moe_intermediate_size": pick(3, 8, 21),
        "n_shared_experts": pick(1, 2, 3),
        "norm_topk_prob": pick(True, False),
        "routed_scaling_factor": pick(1.0, 2.5),
        "first_k_dense_replace": pick(0, 1, 2),
        "use_qk_norm": pick(True, False),
    }


def late_windows(raw, pick):
    layers = raw["num_hidden_layers"]
    window = {"use_sliding_window": True, "sliding_window": pick(4, 11), "max_window_layers": pick(0, 1, layers)}
    kinds = [pick("full_attention", "sliding_attention") for _ in range(layers)]
    return pick({}, {"use_sliding_window": False, "sliding_window": 5}, window, window | {"layer_types": kinds})


def rotation(raw, head_dim, pick):
    """Rotary settings, new or old spelling; of texts that end before or after the length where scaling begins."""
    family, original = raw["model_type"], pick(16, 64)
    partial = pick(1.0, 0.5, 0.8) if family in _PARTIAL else 1.0
    rotated = int(head_dim * partial)
    allowed = [kind for kind in SCALINGS if kind in ("none", "longrope") or family != "phi3"]
    if rotated % 2:
        allowed = [kind for kind in allowed if kind in ("none", "linear", "llama3")]
    if rotated <= 2:
        allowed = [kind for kind in allowed if kind != "dynamic"]
    kind = pick(*allowed)
    factors = lambda low: [low + 0.3 * i for i in range(rotated // 2)]
    scaling = {
        "none": {},
        "linear": {"factor": pick(2.0, 8.0)},
        "dynamic": {"factor": pick(2.0, 4.0)},
        # Where settings are by layer type, transformers reads `truncate` beside them.
        "yarn": {"factor": pick(4.0, 16.0), "beta_fast": pick(4.0, 32.0)}
        | ({} if family in ("gemma3_text", "olmo3") else {"truncate": pick(True, False)})
        | pick({}, {"attention_factor": 0.8}, {"mscale": 1.5, "mscale_all_dim": 0.5})
        | {"original_max_position_embeddings": original},
        "longrope": {"short_factor": factors(1.0), "long_factor": factors(2.0)}
        | pick({}, {"attention_factor": 1.3}, {"factor": 4.0}),
        "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        | {"original_max_position_embeddings": original},
    }[kind]
    if kind == "longrope":
        outside = {"original_max_position_embeddings": original}
        scaling, outside = (scaling, outside) if family == "phi3" else (scaling | outside, {})
    else:
        outside = {}
    if family == "ministral3":
        scaling |= {"llama_4_scaling_beta": pick(0.1, 0.6), "original_max_position_embeddings": pick(7, 16, 64)}
    if family.startswith("hunyuan") and kind == "dynamic":
        scaling |= pick({}, {"alpha": 50.0})
    theta = pick(500.0, 10_000.0)
    name = {"rope_type": "default" if kind == "none" else kind}
    share = {} if partial == 1 and family == "phi3" else {"partial_rotary_factor": partial}
    share = share if family in _PARTIAL else {}
    if family == "gemma3_text":
        local = {"rope_type": "default", "rope_theta": pick(100.0, theta)}
        new = {
            "rope_parameters": {"full_attention": name | scaling | {"rope_theta": theta}, "sliding_attention": local}
        }
        old = {"rope_theta": theta, "rope_local_base_freq": local["rope_theta"]}
        old |= {} if kind == "none" else {"rope_scaling": name | scaling}
        return pick(new, old)
    if family == "olmo3":  # of the old spelling, transformers gives layers with a window the default in any case
        local = {"rope_type": "default", "rope_theta": theta}
        new = {
            "rope_parameters": {"full_attention": name | scaling | {"rope_theta": theta}, "sliding_attention": local}
        }
        return pick(new, {"rope_theta": 500_000.0} | ({} if kind == "none" else {"rope_scaling": name | scaling}))
    old = {"rope_theta": theta, **share} | ({} if kind == "none" else {"rope_scaling": name | scaling})
    if family == "minimax_m2" and pick(True, False):  # as releases spell it
        return {key: value for key, value in old.items() if key != "partial_rotary_factor"} | {"rotary_dim": rotated}
    return outside | pick({"rope_parameters": name | scaling | share | {"rope_theta": theta}}, old)
