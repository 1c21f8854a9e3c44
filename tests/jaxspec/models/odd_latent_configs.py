"""Odd configurations of families with latent attention, and of gpt-oss: what they have beside other families' keys."""


def _experts(pick, heads):
    experts, chosen = pick(6, 12), pick(1, 2, 3)
    return {"n_routed_experts": experts, "num_experts_per_tok": chosen, "n_shared_experts": pick(1, 2)} | {
        "moe_intermediate_size": pick(3, 8, 11),
        "routed_scaling_factor": pick(1.0, 0.6, 2.5),
        "num_key_value_heads": heads,
    }


def _latent(raw, pick):
    # transformers views pairs of elements as complex numbers, which strides of odd length do not allow.
    del raw["head_dim"]
    return {
        "q_lora_rank": pick(None, 5, 12),
        "kv_lora_rank": pick(4, 10, 26),
        "qk_nope_head_dim": pick(2, 6, 10),
        "qk_rope_head_dim": pick(4, 8),
        "v_head_dim": pick(3, 8, 13),
    }


def deepseek_v2(raw, pick):
    found = _latent(raw, pick) | _experts(pick, raw["num_attention_heads"])
    groups = {"topk_method": "group_limited_greedy", "n_group": pick(2, 3), "topk_group": pick(1, 2)}
    return (
        found
        | {"first_k_dense_replace": pick(0, 1, raw["num_hidden_layers"])}
        | pick({}, groups, {"topk_method": "greedy", "n_group": 1, "topk_group": 1})
        | ({"num_experts_per_tok": min(found["num_experts_per_tok"], 2)})
        | pick({}, {"head_dim": found["qk_rope_head_dim"], "norm_topk_prob": False})
    )


def deepseek_v3(raw, pick):
    found = _latent(raw, pick) | _experts(pick, raw["num_attention_heads"])
    groups = pick({"n_group": 1, "topk_group": 1}, {"n_group": 3, "topk_group": 2})
    return found | groups | {"first_k_dense_replace": pick(0, 1, 2), "norm_topk_prob": pick(True, False)}


def youtu(raw, pick):
    return _latent(raw, pick) | {"num_key_value_heads": raw["num_attention_heads"]}


def glm4_moe_lite(raw, pick):
    layers = raw["num_hidden_layers"]
    listed = {"mlp_layer_types": [pick("dense", "sparse") for _ in range(layers)]}
    return (
        _latent(raw, pick)
        | _experts(pick, raw["num_attention_heads"])
        | {"norm_topk_prob": pick(True, False)}
        | pick({}, {"n_group": 3, "topk_group": 2})
        | pick({}, {"first_k_dense_replace": 1}, listed, listed | {"first_k_dense_replace": 1})
    )


def gpt_oss(raw, pick):
    kinds = [pick("full_attention", "sliding_attention") for _ in range(raw["num_hidden_layers"])]
    return {
        "hidden_act": "silu",
        "num_local_experts": pick(3, 7),
        "num_experts_per_tok": pick(1, 2, 3),
        "swiglu_limit": pick(7.0, 0.6, 2.0),
        "sliding_window": pick(2, 5, 40),
        **pick({}, {"layer_types": kinds}),
    }
