"""Checkpoints of networks that see as well as read: only their text decoders are read."""

from __future__ import annotations

from hf_case import Case, rope, sizes

_MSCALES = {"mscale": 1.0, "mscale_all_dim": 1.0}

#: What sees the images of Mistral 3, which no text passes through.
_PIXTRAL = {
    **{"model_type": "pixtral", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1},
    **{"num_attention_heads": 2, "head_dim": 4, "image_size": 8, "patch_size": 4},
}

#: Likewise of Gemma 3 and others.
_SIGLIP = {
    **{"model_type": "siglip_vision_model", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1},
    **{"num_attention_heads": 2, "image_size": 8, "patch_size": 4},
}

#: Of LLaVA's, and of GLM's.
_CLIP = _SIGLIP | {"model_type": "clip_vision_model", "projection_dim": 8}
_GLM_VISION = {
    **{"hidden_size": 8, "intermediate_size": 8, "depth": 1, "num_heads": 2, "out_hidden_size": 24},
    **{"image_size": 8, "patch_size": 4},
}
_SECTIONS = rope("default", 3000.0, partial_rotary_factor=0.7, mrope_section=[1, 0, 1])
_GLM_EXPERTS = {
    **{"head_dim": 6, "n_routed_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 9},
    **{"first_k_dense_replace": 1, "routed_scaling_factor": 1.6},
}

#: One of each kind of network around a text decoder.
WRAPPER_CASES = (
    Case(
        "gemma3_multimodal",
        "gemma3",
        {
            "text_config": sizes(
                (49, 32, 30, 3, 2, 1),
                model_type="gemma3_text",
                head_dim=8,
                query_pre_attn_scalar=12,
                sliding_window=6,
                sliding_window_pattern=3,
                rope_scaling=rope("linear", 50000.0, factor=8.0),
            ),
            "vision_config": dict(_SIGLIP),
            "mm_tokens_per_image": 4,
        },
        seed=40,
        embed_scale=0.2,
        dtype="bfloat16",
    ),
    Case(
        "mistral3_multimodal",
        "mistral3",
        {
            "text_config": sizes(
                (43, 24, 26, 2, 4, 2),
                model_type="mistral",
                head_dim=10,
                sliding_window=None,
                rope_parameters=rope("default", 4000.0),
                tie_word_embeddings=False,
            ),
            "vision_config": dict(_PIXTRAL),
            "tie_word_embeddings": False,
        },
        seed=48,
        dtype="bfloat16",
    ),
    # Queries that grow from the ninth token on.
    Case(
        "ministral3_multimodal",
        "mistral3",
        {
            "text_config": sizes(
                (44, 24, 26, 2, 4, 2),
                model_type="ministral3",
                head_dim=10,
                sliding_window=None,
                max_position_embeddings=256,
                rope_parameters=rope(
                    "yarn",
                    4000.0,
                    factor=16.0,
                    original_max_position_embeddings=9,
                    llama_4_scaling_beta=0.4,
                    **_MSCALES,
                ),
                tie_word_embeddings=True,
            ),
            "vision_config": dict(_PIXTRAL),
            "tie_word_embeddings": True,
        },
        seed=97,
        dtype="bfloat16",
    ),
    *(
        Case(
            f"{name}_multimodal",
            name,
            {
                "text_config": sizes(
                    (45, 24, 26, 4, 4, 2),
                    model_type="cohere2",
                    sliding_window=6,
                    logit_scale=1.0,  # transformers reads over another one, but not where the decoder is alone
                    rope_parameters=rope("default", 3000.0),
                    bos_token_id=1,
                    eos_token_id=2,
                ),
                "vision_config": dict(_SIGLIP),
                "alignment_intermediate_size": 16,
            },
            seed=seed,
            dtype="bfloat16",
        )
        for name, seed in (("aya_vision", 105), ("cohere2_vision", 106))
    ),
    Case(
        "lfm2_vl_multimodal",
        "lfm2_vl",
        {
            "text_config": sizes(
                (44, 24, 41, 4, 4, 2),
                model_type="lfm2",
                block_multiple_of=6,
                full_attn_idxs=[1, 3],
                rope_parameters=rope("default", 3000.0),
            ),
            "vision_config": _SIGLIP | {"model_type": "siglip2_vision_model", "num_patches": 4},
            "projector_hidden_size": 8,
        },
        seed=107,
        dtype="bfloat16",
    ),
    *(
        Case(
            f"{name}_multimodal",
            name,
            {
                "text_config": sizes((42, 24, 26, 2, 4, 2), model_type=text, rope_parameters=rope("default", 3000.0))
                | more,
                "vision_config": vision,
            },
            seed=seed,
            dtype="bfloat16",
        )
        for name, text, seed, more, vision in (
            ("llava_next_video", "llama", 110, {}, _CLIP),
            ("lighton_ocr", "qwen3", 111, {"head_dim": 10}, _PIXTRAL),
            ("exaone4_5", "exaone4", 112, {"sliding_window": 6, "sliding_window_pattern": 2}, _GLM_VISION),
            ("glm4v", "glm4v_text", 113, {"rope_parameters": _SECTIONS}, _GLM_VISION),
            ("glm46v", "glm4v_moe_text", 114, _GLM_EXPERTS | {"rope_parameters": _SECTIONS}, _GLM_VISION),
            (
                "glm4v_moe",
                "glm4v_moe_text",
                115,
                _GLM_EXPERTS | {"rope_parameters": _SECTIONS, "attention_bias": False},
                _GLM_VISION,
            ),
        )
    ),
    # Positions of images have three coordinates; those of text are plain.
    Case(
        "qwen3_vl_multimodal",
        "qwen3_vl",
        {
            "text_config": sizes(
                (41, 24, 26, 2, 4, 2),
                model_type="qwen3_vl_text",
                head_dim=12,
                rope_parameters=rope("default", 6000.0, mrope_section=[2, 2, 2], mrope_interleaved=True),
            ),
            "vision_config": {
                **{"hidden_size": 8, "intermediate_size": 8, "depth": 1, "num_heads": 2, "out_hidden_size": 24},
                **{"patch_size": 4, "deepstack_visual_indexes": [0], "num_position_embeddings": 4},
            },
            "tie_word_embeddings": True,
        },
        seed=49,
        dtype="bfloat16",
    ),
    # The same with experts, all of a layer in one tensor, inputs before outputs; the second layer is dense.
    Case(
        "qwen3_vl_moe_multimodal",
        "qwen3_vl_moe",
        {
            "text_config": sizes(
                (43, 24, 26, 3, 4, 2),
                model_type="qwen3_vl_moe_text",
                head_dim=12,
                num_experts=5,
                num_experts_per_tok=2,
                moe_intermediate_size=14,
                mlp_only_layers=[1],
                rope_parameters=rope("default", 6000.0, mrope_section=[2, 2, 2], mrope_interleaved=True),
            ),
            "vision_config": {
                **{"hidden_size": 8, "intermediate_size": 8, "depth": 1, "num_heads": 2, "out_hidden_size": 24},
                **{"patch_size": 4, "deepstack_visual_indexes": [0], "num_position_embeddings": 4},
            },
        },
        seed=61,
        dtype="bfloat16",
        packed="transposed",
    ),
)
