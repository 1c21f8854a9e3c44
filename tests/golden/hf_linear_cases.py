"""Checkpoints of families in which most layers have linear attention."""

from __future__ import annotations

from hf_case import Case, rope, sizes

_DELTA = ("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim")


def delta(*numbers: int, kernel: int) -> dict[str, int]:
    """Settings of gated delta nets: key and value heads, elements of either, tokens that the convolution joins."""
    return dict(zip(_DELTA, numbers, strict=True)) | {"linear_conv_kernel_dim": kernel}


#: A decoder with experts in all layers.
_EXPERTS = {
    **{"vocab_size": 49, "hidden_size": 22, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2},
    **{"head_dim": 8, "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 7},
    "shared_expert_intermediate_size": 10,
    # As large as in the multimodal case, and for the same reason.
    "rms_norm_eps": 1e-3,
    "layer_types": ["linear_attention", "full_attention"] * 2,
    "rope_parameters": rope("default", 5000.0, partial_rotary_factor=0.25, mrope_section=[1, 0, 0]),
    **delta(2, 4, 6, 5, kernel=3),
}

#: The text decoder alone, and within the network around it.
LINEAR_CASES = (
    # Two periods of three layers with linear attention and one without; two value heads to a key head.
    Case(
        "qwen3_5_hybrid",
        "qwen3_5_text",
        sizes(
            (53, 20, 18, 8, 4, 2),
            head_dim=8,
            rope_parameters=rope("default", 900.0, partial_rotary_factor=0.25, mrope_section=[1, 0, 0]),
            **delta(2, 4, 6, 5, kernel=4),
        ),
        seed=51,
        vector_mean=0.3,
        dtype="bfloat16",
        greedy=12,
    ),
    # A tied head, as many key heads as value heads, a shorter convolution, layers in an order of their own. With a smaller
    # epsilon transformers itself is 2e-5 off what float64 gives: it norms what heads read next to nothing of.
    Case(
        "qwen3_5_multimodal",
        "qwen3_5",
        {
            "text_config": sizes(
                (47, 22, 26, 5, 2, 1),
                model_type="qwen3_5_text",
                head_dim=10,
                tie_word_embeddings=True,
                rms_norm_eps=1e-3,
                layer_types=["full_attention", *["linear_attention"] * 3, "full_attention"],
                rope_parameters=rope("default", 5000.0, partial_rotary_factor=0.4, mrope_section=[1, 1, 0]),
                **delta(3, 3, 4, 7, kernel=3),
            ),
            "vision_config": {
                **{"hidden_size": 8, "intermediate_size": 8, "depth": 1, "num_heads": 2, "out_hidden_size": 22},
                **{"patch_size": 4, "num_position_embeddings": 4},
            },
            "tie_word_embeddings": True,
        },
        seed=52,
        embed_scale=0.3,
        vector_mean=0.3,
        greedy=12,
    ),
    # Experts in all layers but one, each expert's matrices apart; projections of linear attention key head by key head.
    Case(
        "qwen3_next_experts",
        "qwen3_next",
        sizes(
            (51, 20, 18, 6, 4, 2),
            head_dim=8,
            rope_parameters=rope("default", 700.0, partial_rotary_factor=0.5),
            layer_types=["linear_attention", "linear_attention", "full_attention"] * 2,
            num_experts=5,
            num_experts_per_tok=2,
            moe_intermediate_size=9,
            shared_expert_intermediate_size=11,
            norm_topk_prob=False,
            mlp_only_layers=[1],
            **delta(2, 6, 4, 5, kernel=4),
        ),
        seed=53,
        vector_mean=0.3,
        greedy=12,
    ),
    # The text decoder alone, each expert's matrices apart.
    Case(
        "qwen3_5_moe_decoder",
        "qwen3_5_moe_text",
        _EXPERTS | {"tie_word_embeddings": True},
        seed=54,
        embed_scale=0.3,
        vector_mean=0.3,
        greedy=12,
    ),
    # All experts of a layer in one tensor, within the network around the text decoder.
    Case(
        "qwen3_5_moe_multimodal",
        "qwen3_5_moe",
        {
            "text_config": _EXPERTS
            | {"model_type": "qwen3_5_moe_text", "layer_types": ["linear_attention"] * 3 + ["full_attention"]},
            "vision_config": {
                **{"hidden_size": 8, "intermediate_size": 8, "depth": 1, "num_heads": 2, "out_hidden_size": 22},
                **{"patch_size": 4, "num_position_embeddings": 4},
            },
            "tie_word_embeddings": False,
        },
        seed=55,
        vector_mean=0.3,
        dtype="bfloat16",
        packed="stacked",
        greedy=12,
    ),
    # Short convolutions in three layers of five, feed-forward networks whose stated width is made smaller and rounded; keys
    # that releases have beside.
    Case(
        "lfm2_released",
        "lfm2",
        sizes(
            (45, 24, 41, 5, 4, 2),
            block_multiple_of=6,
            full_attn_idxs=[1, 4],
            conv_L_cache=3,
            rope_parameters=rope("default", 3000.0),
        ),
        seed=99,
        dtype="bfloat16",
        released={
            **{"rope_parameters": None, "rope_theta": 3000.0, "layer_types": None, "full_attn_idxs": [1, 4]},
            **{"intermediate_size": None, "block_ff_dim": 41, "tie_word_embeddings": None, "tie_embedding": True},
            **{"block_dim": 24, "conv_dim": 24, "conv_dim_out": 24, "num_heads": 4, "block_norm_eps": 1e-5},
            **{"block_use_swiglu": True, "use_pos_enc": True, "conv_use_xavier_init": True},
        },
        greedy=12,
    ),
    # The same with experts behind a dense layer, sigmoids and corrected scores.
    Case(
        "lfm2_moe_corrected",
        "lfm2_moe",
        sizes(
            (43, 24, 26, 4, 4, 2),
            num_experts=6,
            num_experts_per_tok=2,
            moe_intermediate_size=10,
            num_dense_layers=1,
            routed_scaling_factor=1.7,
            conv_L_cache=4,
            layer_types=["conv", "full_attention", "conv", "conv"],
        ),
        seed=101,
        dtype="bfloat16",
        greedy=12,
    ),
)
