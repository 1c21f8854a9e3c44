"""Checkpoints of dense families that came in 2025."""

from __future__ import annotations

from hf_case import Case, rope, sizes

#: Where the family's own are beyond a small vocabulary.
_TOKENS = {"bos_token_id": 1, "eos_token_id": 2}

#: One of each.
RECENT_CASES = (
    # Norms after the blocks alone, norms over all heads; windows in layers 0, 1 and 3, whose frequencies are not scaled.
    Case(
        "olmo3_windows",
        "olmo3",
        sizes(
            (52, 32, 30, 4, 4, 2),
            sliding_window=7,
            layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
            max_position_embeddings=256,
            rope_parameters={
                "sliding_attention": rope("default", 700.0),
                "full_attention": rope("yarn", 700.0, factor=8.0, original_max_position_embeddings=32),
            },
        ),
        seed=45,
        dtype="bfloat16",
    ),
    # Biases of queries, keys and values, and of what attention gives.
    Case(
        "seed_oss_biased",
        "seed_oss",
        sizes((47, 30, 26, 2, 6, 3), head_dim=8, attention_out_bias=True, pad_token_id=0),
        seed=46,
        dtype="bfloat16",
    ),
    # Planes of neighbouring elements, whole heads.
    Case(
        "ernie4_5_interleaved",
        "ernie4_5",
        sizes((45, 28, 22, 2, 4, 2), head_dim=10, use_bias=True),
        seed=47,
        dtype="bfloat16",
    ),
    # The same norms but those of heads; windows in layers 0, 1 and 3, and layer 2 is not rotated.
    Case(
        "exaone4_windows",
        "exaone4",
        sizes(
            (48, 30, 27, 4, 5, 1),
            head_dim=8,
            sliding_window=6,
            sliding_window_pattern=3,
            rope_parameters=rope("default", 2000.0),
        ),
        seed=50,
        dtype="bfloat16",
    ),
    # Blocks side by side, layer norms without biases, norms of heads with scales of their own.
    Case(
        "cohere_normed",
        "cohere",
        sizes(
            (44, 24, 26, 2, 4, 2),
            use_qk_norm=True,
            attention_bias=True,
            logit_scale=0.3,
            rope_parameters=rope("default", 4000.0),
            **_TOKENS,
        ),
        seed=95,
        dtype="bfloat16",
    ),
    # Windows in four layers of five, of which the other one is not rotated; keys that releases have beside.
    Case(
        "cohere2_released",
        "cohere2",
        sizes(
            (43, 24, 26, 5, 4, 2),
            sliding_window=6,
            logit_scale=0.25,
            rope_parameters=rope("default", 3000.0),
            **_TOKENS,
        ),
        seed=96,
        dtype="bfloat16",
        released={
            **{"layer_types": None, "sliding_window_pattern": 4, "layer_switch": 4, "rotary_pct": 1.0},
            **{"rope_parameters": None, "rope_theta": 3000, "position_embedding_type": "rope_gptj"},
            **{"use_parallel_block": True, "use_gated_activation": True, "use_parallel_embedding": False},
            **{"use_embedding_sharing": True, "order_of_interleaved_layers": "local_attn_first", "head_dim": 6},
        },
    ),
    # Norms of heads after the rotation, whose base is stretched; keys that releases have beside.
    Case(
        "hunyuan_v1_dense_released",
        "hunyuan_v1_dense",
        sizes(
            (44, 24, 26, 2, 4, 2),
            head_dim=8,
            attention_bias=True,
            tie_word_embeddings=True,
            rope_parameters=rope("dynamic", 2000.0, alpha=30.0, factor=1.0),
        ),
        seed=98,
        dtype="bfloat16",
        released={
            **{"attention_head_dim": 8, "use_cla": False, "cla_share_factor": 2, "use_mla": False, "num_experts": 1},
            **{"use_qk_norm": True, "use_rotary_pos_emb": True, "mlp_bias": False, "norm_type": "rms"},
            **{"rope_parameters": None, "rope_theta": 2000.0},
            "rope_scaling": {"type": "dynamic", "alpha": 30.0, "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0},
        },
    ),
    # An activation with numbers of each layer's own; keys that releases have beside.
    Case(
        "apertus_released",
        "apertus",
        sizes(
            (43, 24, 31, 3, 4, 2),
            attention_bias=True,
            rope_parameters=rope(
                "llama3",
                900.0,
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=32,
            ),
            **_TOKENS,
        ),
        seed=103,
        dtype="bfloat16",
        released={"mlp_bias": False, "post_norm": False, "qk_norm": True},
    ),
)
