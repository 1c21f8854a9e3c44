"""What tells one Hugging Face model family from another where it is priced, as a table: a family is an entry.

Defaults are those of the families' configuration classes in transformers 5; what the entries say about biases, norms and
experts is tested against the networks that transformers builds (tests/golden/make_parameter_counts.py).
"""

from __future__ import annotations

import dataclasses
from typing import Any

from hwmodels.catalog.huggingface_family import LLAMA_LIKE, Experts, Family, Windows
from hwmodels.catalog.huggingface_settings import Settings

__all__ = ["FAMILIES"]


def _sizes(
    layers: int,
    hidden: int,
    intermediate: int | None,
    heads: int,
    kv_heads: int | None,
    vocab: int,
    *,
    tied: bool = False,
    **others: Any,
) -> dict[str, Any]:
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocab,
        "tie_word_embeddings": tied,
        **others,
    }


_GPT2_SPELLINGS = {
    "num_hidden_layers": ("n_layer",),
    "hidden_size": ("n_embd",),
    "num_attention_heads": ("n_head",),
    "intermediate_size": ("n_inner",),
    "max_position_embeddings": ("n_positions",),
}
_EXPERT_SPELLINGS = {"num_experts": ("n_routed_experts", "num_local_experts")}
_OLD_EXPERT_SPELLINGS = {"num_experts": ("num_local_experts", "n_routed_experts")}
_WINDOWED = {"use_sliding_window": False, "sliding_window": None, "max_window_layers": 28}
_LAYER_NORM: dict[str, Any] = {"norm_biases": True, "gated_ffn": False}
_OLDER: dict[str, Any] = _LAYER_NORM | {"free_head_dim": False, "grouped_queries": False}


def _falcon_norms(settings: Settings) -> int:
    if not settings.flag("parallel_attn"):
        return 2
    stated = settings.optional_size("num_ln_in_parallel_attn")
    return 2 if stated == 2 or (stated is None and settings.flag("new_decoder_architecture")) else 1


#: `model_type` of config.json -> family.
FAMILIES: dict[str, Family] = {
    "llama": dataclasses.replace(LLAMA_LIKE, defaults=_sizes(32, 4096, 11008, 32, None, 32000)),
    "mistral": Family(defaults=_sizes(32, 4096, 14336, 32, 8, 32000, sliding_window=4096), windows=Windows("all")),
    "mixtral": Family(
        defaults=_sizes(32, 4096, 14336, 32, 8, 32000, num_experts=8, num_experts_per_tok=2),
        spellings=_OLD_EXPERT_SPELLINGS,
        experts=Experts("all", size="intermediate_size"),
        windows=Windows("all"),
    ),
    "qwen2": Family(
        defaults=_sizes(32, 4096, 22016, 32, 32, 151936, **_WINDOWED),
        qkv_bias=True,
        windows=Windows("from_layer", enabled="use_sliding_window"),
    ),
    "qwen3": Family(
        defaults=_sizes(32, 4096, 22016, 32, 32, 151936, head_dim=128, **_WINDOWED),
        qk_norm="head",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        windows=Windows("from_layer", enabled="use_sliding_window"),
    ),
    "qwen2_moe": Family(
        defaults=_sizes(24, 2048, 5632, 16, 16, 151936, **_WINDOWED)
        | {"num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408, "decoder_sparse_step": 1}
        | {"shared_expert_intermediate_size": 5632, "qkv_bias": True},
        spellings=_EXPERT_SPELLINGS,
        qkv_bias="qkv_bias",
        experts=Experts("every_nth", shared="shared_expert_intermediate_size", shared_gate=True),
        windows=Windows("every_other_up_to_layer", enabled="use_sliding_window"),
    ),
    "qwen3_moe": Family(
        defaults=_sizes(24, 2048, 6144, 32, 4, 151936)
        | {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "decoder_sparse_step": 1},
        spellings=_EXPERT_SPELLINGS,
        qk_norm="head",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        experts=Experts("every_nth"),
        windows=Windows("all", enabled="use_sliding_window"),
    ),
    "deepseek_v2": Family(
        defaults=_sizes(32, 4096, 11008, 32, None, 102400)
        | {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
        | {"num_experts": 64, "n_shared_experts": 2, "moe_intermediate_size": 1407, "first_k_dense_replace": 0},
        spellings=_OLD_EXPERT_SPELLINGS,
        latent=True,
        experts=Experts("after_dense", shared="n_shared_experts"),
        must_equal={"moe_layer_freq": 1, "mlp_bias": False},
    ),
    "deepseek_v3": Family(
        defaults=_sizes(61, 7168, 18432, 128, None, 129280)
        | {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
        | {"num_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1}
        | {"moe_intermediate_size": 2048, "first_k_dense_replace": 3},
        spellings=_OLD_EXPERT_SPELLINGS,
        latent=True,
        experts=Experts("after_dense", shared="n_shared_experts", correction_bias=True),
        must_equal={"moe_layer_freq": 1},
    ),
    "glm": Family(
        defaults=_sizes(40, 4096, 13696, 32, 2, 151552, head_dim=128, attention_bias=True),
        qkv_bias="attention_bias",
    ),
    "glm4": Family(
        defaults=_sizes(40, 4096, 13696, 32, 2, 151552, head_dim=128, attention_bias=True),
        norms_per_layer=4,
        qkv_bias="attention_bias",
    ),
    "glm4_moe": Family(
        defaults=_sizes(46, 4096, 10944, 96, 8, 151552)
        | {"num_experts": 128, "num_experts_per_tok": 8, "n_shared_experts": 1}
        | {"moe_intermediate_size": 1408, "first_k_dense_replace": 1},
        spellings=_OLD_EXPERT_SPELLINGS,
        qk_norm="optional_head",
        qkv_bias="attention_bias",
        experts=Experts("after_dense", shared="n_shared_experts", correction_bias=True),
    ),
    "glm4_moe_lite": Family(
        defaults=_sizes(47, 2048, 10240, 20, None, 154880)
        | {"kv_lora_rank": 512, "q_lora_rank": 768, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256}
        | {"num_experts": 64, "num_experts_per_tok": 4, "n_shared_experts": 1}
        | {"moe_intermediate_size": 1536, "first_k_dense_replace": 1},
        spellings=_OLD_EXPERT_SPELLINGS,
        latent=True,
        experts=Experts("after_dense", shared="n_shared_experts", correction_bias=True),
    ),
    "gpt_oss": Family(
        defaults=_sizes(36, 2880, 2880, 64, 8, 201088, head_dim=64, attention_bias=True)
        | {"num_experts": 128, "num_experts_per_tok": 4, "sliding_window": 128, "sliding_window_pattern": 2},
        spellings={"num_experts": ("num_local_experts",), "num_experts_per_tok": ("experts_per_token",)},
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        learned_sinks=True,
        experts=Experts("all", size="intermediate_size", biases=True),
        windows=Windows("all_but_every_nth"),
    ),
    "opt": Family(
        defaults=_sizes(12, 768, 3072, 12, None, 50272, tied=True, max_position_embeddings=2048, enable_bias=True)
        | {"layer_norm_elementwise_affine": True},
        spellings={"intermediate_size": ("ffn_dim",)},
        qkv_bias="enable_bias",
        o_bias="enable_bias",
        ffn_bias="enable_bias",
        learned_positions=2,
        must_equal={
            "do_layer_norm_before": True,
            "_remove_final_layer_norm": False,
            "layer_norm_elementwise_affine": True,
        },
        **_OLDER,
    ),
    "gemma": Family(
        defaults=_sizes(28, 3072, 24576, 16, 16, 256000, tied=True, head_dim=256),
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        must_equal={"use_bidirectional_attention": False},
    ),
    "gemma2": Family(
        defaults=_sizes(26, 2304, 9216, 8, 4, 256000, tied=True, head_dim=256)
        | {"sliding_window": 4096, "sliding_window_pattern": 2},
        norms_per_layer=4,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        windows=Windows("all_but_every_nth"),
        must_equal={"use_bidirectional_attention": False},
    ),
    "gemma3_text": Family(
        defaults=_sizes(26, 2304, 9216, 8, 4, 262208, tied=True, head_dim=256)
        | {"sliding_window": 4096, "sliding_window_pattern": 6},
        norms_per_layer=4,
        qk_norm="head",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        windows=Windows("all_but_every_nth"),
        must_equal={"use_bidirectional_attention": False},
    ),
    "phi": Family(
        defaults=_sizes(24, 2048, 8192, 32, None, 51200),
        norms_per_layer=1,
        qkv_bias=True,
        o_bias=True,
        ffn_bias=True,
        head_bias=True,
        must_equal={"qk_layernorm": False},
        **_LAYER_NORM,
    ),
    "phi3": Family(defaults=_sizes(32, 3072, 8192, 32, None, 32064), windows=Windows("all")),
    "phimoe": Family(
        defaults=_sizes(32, 4096, 6400, 32, 8, 32064, num_experts=16, num_experts_per_tok=2),
        spellings=_OLD_EXPERT_SPELLINGS,
        norm_biases=True,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        head_bias="lm_head_bias",
        experts=Experts("all", size="intermediate_size"),
        windows=Windows("all"),
    ),
    "olmo2": Family(
        defaults=_sizes(32, 4096, 11008, 32, None, 50304),
        qk_norm="all",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
    ),
    "olmo3": Family(
        defaults=_sizes(32, 4096, 11008, 32, None, 50304, sliding_window=4096, sliding_window_pattern=4),
        qk_norm="all",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        windows=Windows("all_but_every_nth"),
    ),
    "olmoe": Family(
        defaults=_sizes(16, 2048, 2048, 16, None, 50304, num_experts=64, num_experts_per_tok=8),
        spellings=_EXPERT_SPELLINGS,
        qk_norm="all",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        experts=Experts("all", size="intermediate_size"),
    ),
    "granite": dataclasses.replace(LLAMA_LIKE, defaults=_sizes(32, 4096, 11008, 32, None, 32000)),
    "granitemoe": Family(
        defaults=_sizes(32, 4096, 11008, 32, None, 32000, num_experts=8, num_experts_per_tok=2),
        spellings=_OLD_EXPERT_SPELLINGS,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        experts=Experts("all", size="intermediate_size"),
    ),
    "granitemoeshared": Family(
        defaults=_sizes(32, 4096, 11008, 32, None, 32000, num_experts=8, num_experts_per_tok=2)
        | {"shared_intermediate_size": 0},
        spellings=_OLD_EXPERT_SPELLINGS,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        experts=Experts("all", size="intermediate_size", shared="shared_intermediate_size"),
    ),
    "starcoder2": Family(
        defaults=_sizes(30, 3072, 12288, 24, 2, 49152, tied=True, use_bias=True),
        qkv_bias="use_bias",
        o_bias="use_bias",
        ffn_bias="use_bias",
        windows=Windows("all"),
        **_LAYER_NORM,
    ),
    "falcon": Family(
        defaults=_sizes(32, 4544, None, 71, None, 65024, tied=True, multi_query=True, parallel_attn=True),
        spellings={
            "num_hidden_layers": ("n_layer",),
            "num_attention_heads": ("n_head",),
            "hidden_size": ("n_embed",),
            "num_key_value_heads": ("n_head_kv", "num_kv_heads"),
            "intermediate_size": ("ffn_hidden_size",),
        },
        norms_per_layer=_falcon_norms,
        qkv_bias="bias",
        o_bias="bias",
        ffn_bias="bias",
        free_head_dim=False,
        **_LAYER_NORM,
    ),
    "gpt2": Family(
        defaults=_sizes(12, 768, None, 12, None, 50257, tied=True, max_position_embeddings=1024),
        spellings=_GPT2_SPELLINGS,
        qkv_bias=True,
        o_bias=True,
        ffn_bias=True,
        learned_positions=0,
        **_OLDER,
    ),
    "gpt_bigcode": Family(
        defaults=_sizes(12, 768, None, 12, None, 50257, tied=True, max_position_embeddings=1024, multi_query=True),
        spellings=_GPT2_SPELLINGS,
        qkv_bias=True,
        o_bias=True,
        ffn_bias=True,
        learned_positions=0,
        **_OLDER,
    ),
    "gptj": Family(
        defaults=_sizes(28, 4096, None, 16, None, 50400),
        spellings=_GPT2_SPELLINGS,
        norms_per_layer=1,
        ffn_bias=True,
        head_bias=True,
        **_OLDER,
    ),
    "gpt_neox": Family(
        defaults=_sizes(44, 6144, 24576, 64, None, 50432, attention_bias=True),
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        ffn_bias=True,
        grouped_queries=False,
        **_LAYER_NORM,
    ),
    "bloom": Family(
        defaults=_sizes(2, 64, None, 8, None, 250880, tied=True),
        spellings={
            "num_hidden_layers": ("n_layer",),
            "num_attention_heads": ("n_head",),
            "hidden_size": ("n_embed",),
        },
        qkv_bias=True,
        o_bias=True,
        ffn_bias=True,
        embedding_norm=True,
        **_OLDER,
    ),
    "cohere": Family(
        defaults=_sizes(40, 8192, 22528, 64, None, 256000, tied=True),
        norms_per_layer=1,
        qk_norm="optional_all",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
    ),
    "cohere2": Family(
        defaults=_sizes(40, 8192, 22528, 64, None, 256000, tied=True, sliding_window=4096, sliding_window_pattern=4),
        norms_per_layer=1,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        windows=Windows("all_but_every_nth"),
        free_head_dim=False,
    ),
    "stablelm": Family(
        defaults=_sizes(32, 2560, 6912, 32, 32, 50304),
        norms_per_layer=lambda settings: 1 if settings.flag("use_parallel_residual") else 2,
        norm_biases=True,
        qkv_bias="use_qkv_bias",
        must_equal={"qk_layernorm": False},
        free_head_dim=False,
    ),
    "nemotron": Family(
        defaults=_sizes(32, 6144, 24576, 48, None, 256000),
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        ffn_bias="mlp_bias",
        **_LAYER_NORM,
    ),
    "smollm3": dataclasses.replace(
        LLAMA_LIKE,
        defaults=_sizes(36, 2048, 11008, 16, 4, 128256, tied=True),
        must_equal={"use_sliding_window": False},
    ),
    "seed_oss": Family(
        defaults=_sizes(64, 4096, 27648, 80, 8, 155136, head_dim=128, attention_bias=True),
        qkv_bias="attention_bias",
        o_bias="attention_out_bias",
        ffn_bias="mlp_bias",
    ),
    "ernie4_5": Family(
        defaults=_sizes(18, 1024, 3072, 16, 2, 103424, tied=True, head_dim=128),
        qkv_bias="use_bias",
        o_bias="use_bias",
        ffn_bias="use_bias",
    ),
}
