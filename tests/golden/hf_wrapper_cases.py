"""Checkpoints of networks that see as well as read: only their text decoders are read."""

from __future__ import annotations

from hf_case import Case, rope, sizes

#: One of each kind of network around a text decoder.
WRAPPER_CASES = (
    Case(
        "gemma3_multimodal",
        "gemma3",
        {
            "text_config": sizes(
                49,
                32,
                30,
                3,
                2,
                1,
                model_type="gemma3_text",
                head_dim=8,
                query_pre_attn_scalar=12,
                sliding_window=6,
                sliding_window_pattern=3,
                rope_scaling=rope("linear", 50000.0, factor=8.0),
            ),
            "vision_config": {
                "model_type": "siglip_vision_model",
                "hidden_size": 8,
                "intermediate_size": 8,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "image_size": 8,
                "patch_size": 4,
            },
            "mm_tokens_per_image": 4,
        },
        seed=40,
        embed_scale=0.2,
        dtype="bfloat16",
    ),
)
