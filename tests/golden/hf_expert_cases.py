"""Checkpoints of families with mixtures of experts."""

from __future__ import annotations

from typing import Any

from hf_case import Case, rope, sizes

#: Of gpt-oss, whose names of sizes differ; the limit is one that gates reach.
GPT_OSS = {"num_local_experts": 5, "num_experts_per_tok": 2, "swiglu_limit": 0.75, "sliding_window": 6}

#: Of Granite.
GRANITE = {"embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.6, "logits_scaling": 1.7}

#: Of Kimi K2, whose ramp between kept and divided frequencies begins and ends at the same number of turns.
KIMI_YARN = {"factor": 16.0, "original_max_position_embeddings": 16, "beta_fast": 1.0, "beta_slow": 1.0} | {
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}


def latent(query_rank: int | None, rank: int, plain: int, rotated: int, values: int) -> dict[str, Any]:
    """Sizes of latent attention: both ranks, then elements of a head."""
    heads = {"qk_nope_head_dim": plain, "qk_rope_head_dim": rotated, "v_head_dim": values}
    return {"q_lora_rank": query_rank, "kv_lora_rank": rank} | heads


def routed(experts: int, chosen: int, shared: int, size: int) -> dict[str, Any]:
    """Numbers of experts, of those of a token and of shared ones, and the size of one."""
    counts = {"n_routed_experts": experts, "num_experts_per_tok": chosen, "n_shared_experts": shared}
    return counts | {"moe_intermediate_size": size}


#: One or several of each family.
EXPERT_CASES = (
    # Experts in layers 1 and 2 of 0 to 3, weights as softmax gives them; expert sizes that no power of two divides.
    Case(
        "qwen3_moe_sparse",
        "qwen3_moe",
        sizes(
            (43, 28, 30, 4, 4, 2),
            head_dim=10,
            num_experts=7,
            num_experts_per_tok=3,
            moe_intermediate_size=9,
            mlp_only_layers=[0, 3],
            norm_topk_prob=False,
        ),
        seed=31,
        dtype="bfloat16",
    ),
    # Experts in all layers, weights divided by their sum; a window.
    Case(
        "mixtral_window",
        "mixtral",
        sizes((47, 24, 22, 2, 6, 3), num_local_experts=5, num_experts_per_tok=2, sliding_window=8),
        seed=32,
    ),
    # A dense layer, then experts of which two groups of three are chosen from, and a shared one; corrected scores.
    Case(
        "glm4_moe_grouped",
        "glm4_moe",
        sizes(
            (45, 32, 26, 3, 4, 2),
            head_dim=12,
            attention_bias=True,
            use_qk_norm=True,
            **routed(12, 3, 2, 7),
            n_group=3,
            topk_group=2,
            routed_scaling_factor=1.7,
            first_k_dense_replace=1,
        ),
        seed=33,
        dtype="bfloat16",
    ),
    # Latents of queries too, yarn whose factor of the scores counts, biases; one group of three is chosen from.
    Case(
        "deepseek_v2_grouped",
        "deepseek_v2",
        sizes(
            (41, 30, 26, 3, 5, 5),
            attention_bias=True,
            **latent(14, 18, 6, 8, 7),
            **routed(9, 2, 2, 6),
            first_k_dense_replace=1,
            topk_method="group_limited_greedy",
            n_group=3,
            topk_group=1,
            routed_scaling_factor=2.5,
            max_position_embeddings=256,
            rope_parameters=rope(
                "yarn", 600.0, factor=8.0, original_max_position_embeddings=32, mscale=0.9, mscale_all_dim=0.6
            ),
        ),
        seed=34,
        dtype="bfloat16",
    ),
    # Queries without latents, all layers experts, all experts chosen from.
    Case(
        "deepseek_v2_whole",
        "deepseek_v2",
        sizes((44, 24, 20, 2, 4, 4), **latent(None, 12, 6, 4, 8), **routed(6, 3, 1, 5)),
        seed=35,
    ),
    # Sigmoids, a sum of corrected scores for each group, yarn.
    Case(
        "deepseek_v3_grouped",
        "deepseek_v3",
        sizes(
            (46, 26, 18, 3, 2, 2),
            **latent(8, 14, 4, 6, 5),
            **routed(8, 3, 1, 6),
            first_k_dense_replace=2,
            n_group=4,
            topk_group=2,
            max_position_embeddings=64,
            rope_parameters=rope(
                "yarn", 900.0, factor=4.0, original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=1.0
            ),
        ),
        seed=39,
        dtype="bfloat16",
    ),
    # DeepSeek-V3's network under another name, spelled as the release spells it; matrices of the layers in FP8.
    Case(
        "kimi_k2_released",
        "deepseek_v3",
        sizes(
            (50, 36, 24, 3, 3, 3),
            **latent(12, 18, 4, 6, 8),
            **routed(8, 3, 1, 12),
            first_k_dense_replace=1,
            n_group=1,
            topk_group=1,
            routed_scaling_factor=2.827,
            max_position_embeddings=256,
            rope_parameters=rope("yarn", 50_000.0, **KIMI_YARN),
        ),
        seed=41,
        dtype="bfloat16",
        packed="fp8",
        released={
            "model_type": "kimi_k2",
            "auto_map": {"AutoModelForCausalLM": "modeling_deepseek.DeepseekV3ForCausalLM"},
            "dtype": None,
            "torch_dtype": "bfloat16",
            "rope_parameters": None,
            "rope_theta": 50_000.0,
            "rope_scaling": {"type": "yarn", **KIMI_YARN},
            **{
                "scoring_func": "sigmoid",
                "topk_method": "noaux_tc",
                "moe_layer_freq": 1,
                "num_nextn_predict_layers": 0,
            },
        },
    ),
    # Sigmoids without groups, norms over all heads, half of each head rotated: keys that releases have beside.
    Case(
        "minimax_m2_released",
        "minimax_m2",
        sizes(
            (44, 30, 11, 2, 6, 2),
            head_dim=8,
            num_local_experts=7,
            num_experts_per_tok=3,
            rope_parameters=rope("default", 3000.0, partial_rotary_factor=0.5),
        ),
        seed=42,
        dtype="bfloat16",
        released={
            **{"rope_parameters": None, "rope_theta": 3000.0, "rotary_dim": 4, "shared_intermediate_size": 0},
            **{"use_qk_norm": True, "qk_norm_type": "per_layer", "scoring_func": "sigmoid", "use_routing_bias": True},
        },
    ),
    # Norms over all heads, weights as softmax gives them.
    Case(
        "olmoe_whole",
        "olmoe",
        sizes((43, 30, 13, 2, 5, 5), num_experts=6, num_experts_per_tok=2, rope_parameters=rope("default", 8000.0)),
        seed=43,
        dtype="bfloat16",
    ),
    # A shared expert behind a gate; a dense layer; biases of queries, keys and values.
    Case(
        "qwen2_moe_shared",
        "qwen2_moe",
        sizes(
            (41, 30, 14, 3, 5, 5),
            num_experts=6,
            num_experts_per_tok=3,
            moe_intermediate_size=9,
            shared_expert_intermediate_size=11,
            mlp_only_layers=[1],
        ),
        seed=51,
        dtype="bfloat16",
    ),
    # All experts of a layer in one tensor; multipliers of embedding, scores, residuals and logits.
    Case(
        "granitemoe_scaled",
        "granitemoe",
        sizes((44, 32, 9, 2, 4, 2), num_local_experts=5, num_experts_per_tok=2, **GRANITE),
        seed=52,
    ),
    Case(
        "granitemoeshared_scaled",
        "granitemoeshared",
        sizes((44, 32, 9, 2, 4, 2), num_local_experts=5, num_experts_per_tok=2, shared_intermediate_size=13, **GRANITE),
        seed=53,
        dtype="bfloat16",
    ),
    # What others call the shared expert alone, in a family of state-space layers that has none here; as releases state it.
    Case(
        "granitemoehybrid_dense",
        "granitemoehybrid",
        sizes(
            (46, 32, 14, 2, 4, 2),
            num_local_experts=0,
            num_experts_per_tok=0,
            shared_intermediate_size=14,
            position_embedding_type="rope",
            mamba_n_heads=4,
            layer_types=["full_attention"] * 2,
            **GRANITE,
        ),
        seed=94,
        dtype="bfloat16",
        released={"layer_types": ["attention"] * 2},
    ),
    # Sigmoids, norms of heads, a window in the last layer of three.
    Case(
        "dots1_windows",
        "dots1",
        sizes(
            (45, 28, 18, 3, 4, 2),
            head_dim=10,
            **routed(8, 3, 2, 7),
            first_k_dense_replace=1,
            n_group=2,
            topk_group=1,
            norm_topk_prob=True,
            routed_scaling_factor=1.7,
            sliding_window=6,
            max_window_layers=2,
        ),
        seed=44,
        dtype="bfloat16",
    ),
    # Latents with corrected scores.
    Case(
        "glm4_moe_lite_latent",
        "glm4_moe_lite",
        sizes(
            (42, 28, 22, 3, 4, 4),
            **latent(10, 16, 6, 4, 9),
            **routed(6, 2, 1, 7),
            n_group=2,
            topk_group=1,
            mlp_layer_types=["sparse", "dense", "sparse"],
        ),
        seed=36,
        dtype="bfloat16",
    ),
    # Sinks, a window in layers 0 and 2, yarn unless said otherwise; experts' biases, and gates at their limit.
    Case(
        "gpt_oss_sinks",
        "gpt_oss",
        sizes((48, 36, 14, 3, 6, 2), head_dim=10, **GPT_OSS),
        seed=37,
        vector_mean=0.5,
        dtype="bfloat16",
    ),
    Case(
        "gpt_oss_packed",
        "gpt_oss",
        sizes((39, 64, 32, 2, 4, 2), head_dim=8, rope_parameters=rope("default", 5000.0), **GPT_OSS),
        seed=38,
        dtype="bfloat16",
        packed="mxfp4",
    ),
    # Corrected scores of a softmax, experts in layers 1 and 3 of 0 to 4, planes of neighbouring elements.
    Case(
        "ernie4_5_moe_interval",
        "ernie4_5_moe",
        sizes(
            (44, 24, 26, 5, 4, 2),
            moe_num_experts=6,
            moe_k=2,
            moe_num_shared_experts=2,
            moe_intermediate_size=9,
            moe_layer_interval=2,
            moe_layer_start_index=1,
            moe_layer_end_index=3,
            tie_word_embeddings=False,
        ),
        seed=102,
        dtype="bfloat16",
    ),
    # GLM-4.5's network without dense layers, whole heads rotated.
    Case(
        "solar_open_biased",
        "solar_open",
        sizes(
            (43, 24, 26, 2, 4, 2),
            head_dim=8,
            n_routed_experts=6,
            num_experts_per_tok=2,
            moe_intermediate_size=9,
            n_shared_experts=2,
            routed_scaling_factor=1.6,
            attention_bias=True,
        ),
        seed=108,
        dtype="bfloat16",
    ),
    # Latent attention without experts.
    Case(
        "youtu_scaled",
        "youtu",
        sizes(
            (44, 24, 26, 2, 4, 4),
            kv_lora_rank=10,
            q_lora_rank=14,
            qk_nope_head_dim=9,
            qk_rope_head_dim=6,
            v_head_dim=11,
            rope_parameters=rope("yarn", 900.0, factor=8.0, original_max_position_embeddings=16, mscale_all_dim=0.7),
        ),
        seed=109,
        dtype="bfloat16",
    ),
    # A shared expert beside the routed ones; numbers layer by layer, and other keys that releases have beside.
    Case(
        "hunyuan_v1_moe_released",
        "hunyuan_v1_moe",
        sizes(
            (44, 24, 10, 3, 4, 2),
            head_dim=8,
            num_experts=6,
            moe_topk=[2, 2, 2],
            tie_word_embeddings=True,
            rope_parameters=rope("dynamic", 2000.0, alpha=30.0, factor=1.0),
        ),
        seed=104,
        dtype="bfloat16",
        released={
            **{"attention_head_dim": 8, "use_cla": False, "cla_share_factor": 2, "use_mla": False, "norm_type": "rms"},
            **{"use_qk_norm": True, "use_rotary_pos_emb": True, "mlp_bias": False, "use_mixed_mlp_moe": True},
            **{"num_shared_expert": [1, 1, 1], "moe_intermediate_size": [10, 10, 10], "moe_layer_num_skipped": 0},
            **{"norm_topk_prob": True, "group_limited_greedy": False, "rope_parameters": None, "rope_theta": 2000.0},
            "rope_scaling": {"type": "dynamic", "alpha": 30.0, "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0},
        },
    ),
)
