"""Checkpoints of families that have a row of known blocks, and of further networks that see or hear."""

from __future__ import annotations

from typing import Any

from hf_case import Case, rope, sizes

_PLAIN = rope("default", 3000.0)

#: Dense families.
_DENSE = (
    Case(
        "gemma_shifted", "gemma", sizes((44, 24, 26, 2, 4, 2), head_dim=10, rope_parameters=_PLAIN), 60, embed_scale=0.2
    ),
    Case(
        "vaultgemma_capped",
        "vaultgemma",
        sizes(
            (46, 24, 26, 3, 4, 2),
            head_dim=10,
            query_pre_attn_scalar=12,
            sliding_window=6,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            attn_logit_softcapping=5.0,
            final_logit_softcapping=3.0,
            rope_parameters=_PLAIN,
        ),
        61,
        embed_scale=0.2,
    ),
    Case(
        "internlm3_biased",
        "internlm3",
        sizes((45, 24, 26, 2, 4, 2), head_dim=10, attention_bias=True, mlp_bias=True),
        62,
    ),
    Case("iquestcoder_plain", "iquestcoder", sizes((42, 24, 26, 2, 4, 2), head_dim=10, rope_parameters=_PLAIN), 63),
    Case(
        "cwm_windows",
        "cwm",
        sizes((43, 24, 26, 5, 4, 2), head_dim=10, sliding_window=6, rope_parameters=_PLAIN),
        64,
    ),
    Case(
        "ministral_windows",
        "ministral",
        sizes(
            (47, 24, 26, 3, 4, 2),
            head_dim=10,
            sliding_window=5,
            layer_types=["sliding_attention", "full_attention", "full_attention"],
        ),
        65,
    ),
    Case("helium_interleaved", "helium", sizes((48, 24, 26, 2, 4, 2), head_dim=6, attention_bias=False), 66),
    Case("arcee_squared", "arcee", sizes((41, 24, 30, 2, 4, 2), mlp_bias=True), 67),
    Case("stablelm_partial", "stablelm", sizes((40, 64, 26, 2, 4, 2), use_qkv_bias=True), 68),
    Case("starcoder2_biased", "starcoder2", sizes((46, 24, 30, 2, 4, 2), rope_parameters=_PLAIN), 69),
)

_VISION = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
_SQUARE = {"image_size": 8, "patch_size": 4}
_CLIP: dict[str, Any] = {"model_type": "clip_vision_model", **_VISION, **_SQUARE}
_SIGLIP: dict[str, Any] = {"model_type": "siglip_vision_model", **_VISION, **_SQUARE}


def _around(name: str, text: str, seed: int, *, vision: dict[str, Any], **others: Any) -> Case:
    """A network around a small text decoder."""
    inner = sizes((41 + seed % 5, 24, 26, 2, 4, 2), model_type=text, rope_parameters=rope("default", 4000.0))
    return Case(
        f"{name}_multimodal",
        name,
        {"text_config": inner, "vision_config": vision, "tie_word_embeddings": False} | others,
        seed,
    )


_QWEN_TOWER = {"depth": 1, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 1, "temporal_patch_size": 1}
_MROPE = rope("default", 5000.0, mrope_section=[1, 1, 1])

#: Networks around text decoders.
_WRAPPED = (
    _around("llava", "llama", 70, vision=_CLIP),
    _around("llava_next", "mistral", 71, vision=_CLIP),
    _around("vipllava", "llama", 72, vision=_CLIP, vision_feature_layers=[-1]),
    _around("llava_onevision", "qwen2", 73, vision=_SIGLIP),
    _around("internvl", "qwen3", 74, vision={**_VISION, "image_size": [8, 8], "patch_size": [4, 4]}),
    _around("idefics3", "llama", 77, vision={**_VISION, **_SQUARE}, scale_factor=2),
    _around("smolvlm", "llama", 78, vision={**_VISION, **_SQUARE}, scale_factor=2),
    *(
        Case(
            f"{name}_multimodal",
            name,
            {
                "text_config": sizes((40 + number, 24, 26, 2, 4, 2), rope_parameters=_MROPE),
                "vision_config": tower | _QWEN_TOWER,
                "tie_word_embeddings": False,
            },
            79 + number,
        )
        for number, (name, tower) in enumerate(
            (
                ("qwen2_vl", {"embed_dim": 8, "hidden_size": 24, "mlp_ratio": 1}),
                ("qwen2_5_vl", {"hidden_size": 8, "intermediate_size": 8, "out_hidden_size": 24}),
            )
        )
    ),
)

FURTHER_CASES = (*_DENSE, *_WRAPPED)
