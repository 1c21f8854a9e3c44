"""Configurations of releases whose networks `make_parameter_counts.py` counts.

They hold the keys of the named repository's config.json that decide sizes.
"""

from __future__ import annotations

from typing import Any


def sizes(
    model_type: str, layers: int, hidden: int, intermediate: int, heads: int, kv_heads: int, vocab: int, **others: Any
) -> dict[str, Any]:
    """A config.json with the usual keys."""
    return {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocab,
        **others,
    }


def opt(layers: int, hidden: int, heads: int) -> dict[str, Any]:
    """A config.json of an OPT release whose embeddings are as wide as its layers."""
    return {
        "model_type": "opt",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "ffn_dim": 4 * hidden,
        "num_attention_heads": heads,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
        "word_embed_proj_dim": hidden,
        "do_layer_norm_before": True,
    }


UNTIED, TIED = {"tie_word_embeddings": False}, {"tie_word_embeddings": True}
LLAMA_7B = sizes("llama", 32, 4096, 11008, 32, 32, 32000, **UNTIED)
LLAMA_13B = sizes("llama", 40, 5120, 13824, 40, 40, 32000, **UNTIED)
LINEAR = {
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}
QWEN_WINDOWS = {"use_sliding_window": False, "sliding_window": 32768, "max_window_layers": 28}
QWEN_27B = (
    sizes("qwen3_5_text", 64, 5120, 17408, 24, 4, 248320, head_dim=256, **UNTIED)
    | {"linear_num_value_heads": 48, "layer_types": [*["linear_attention"] * 3, "full_attention"] * 16}
    | LINEAR
)

#: Name (that of the catalog's entry, where it has one) -> config.json.
RELEASES: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": sizes("llama", 32, 4096, 14336, 32, 8, 128256, **UNTIED),
    "llama-3.2-1b": sizes("llama", 16, 2048, 8192, 32, 8, 128256, head_dim=64, **TIED),
    "llama-3.2-3b": sizes("llama", 28, 3072, 8192, 24, 8, 128256, head_dim=128, **TIED),
    "llama-2-13b": LLAMA_13B,
    "vicuna-7b": LLAMA_7B,
    "vicuna-13b": LLAMA_13B,
    "longchat-7b": LLAMA_7B,
    "longchat-13b": LLAMA_13B,
    "llama-3.1-70b": sizes("llama", 80, 8192, 28672, 64, 8, 128256, **UNTIED),
    "llama-3.1-405b": sizes("llama", 126, 16384, 53248, 128, 8, 128256, **UNTIED),
    "mistral-small-24b": sizes("mistral", 40, 5120, 32768, 32, 8, 131072, head_dim=128, sliding_window=None, **UNTIED),
    "qwen2.5-0.5b": sizes("qwen2", 24, 896, 4864, 14, 2, 151936, **TIED, **QWEN_WINDOWS),
    "qwen2.5-1.5b": sizes("qwen2", 28, 1536, 8960, 12, 2, 151936, **TIED, **QWEN_WINDOWS),
    "qwen2.5-3b": sizes("qwen2", 36, 2048, 11008, 16, 2, 151936, **TIED, **QWEN_WINDOWS),
    "qwen2.5-7b": sizes("qwen2", 28, 3584, 18944, 28, 4, 152064, **UNTIED, **QWEN_WINDOWS),
    "qwen2.5-14b": sizes("qwen2", 48, 5120, 13824, 40, 8, 152064, **UNTIED, **QWEN_WINDOWS),
    "qwen2.5-32b": sizes("qwen2", 64, 5120, 27648, 40, 8, 152064, **UNTIED, **QWEN_WINDOWS),
    "qwen2.5-72b": sizes("qwen2", 80, 8192, 29568, 64, 8, 152064, **UNTIED, **QWEN_WINDOWS),
    "qwen3-0.6b": sizes("qwen3", 28, 1024, 3072, 16, 8, 151936, head_dim=128, **TIED),
    "qwen3-1.7b": sizes("qwen3", 28, 2048, 6144, 16, 8, 151936, head_dim=128, **TIED),
    "qwen3-4b": sizes("qwen3", 36, 2560, 9728, 32, 8, 151936, head_dim=128, **TIED),
    "qwen3-8b": sizes("qwen3", 36, 4096, 12288, 32, 8, 151936, head_dim=128, **UNTIED),
    "qwen3-14b": sizes("qwen3", 40, 5120, 17408, 40, 8, 151936, head_dim=128, **UNTIED),
    "qwen3-32b": sizes("qwen3", 64, 5120, 25600, 64, 8, 151936, head_dim=128, **UNTIED),
    "qwen3-30b-a3b": sizes("qwen3_moe", 48, 2048, 6144, 32, 4, 151936, head_dim=128, **UNTIED)
    | {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "decoder_sparse_step": 1}
    | {"mlp_only_layers": [], "use_sliding_window": False, "sliding_window": None, "max_window_layers": 48},
    "qwen3-235b-a22b": sizes("qwen3_moe", 94, 4096, 12288, 64, 4, 151936, head_dim=128, **UNTIED)
    | {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1536, "decoder_sparse_step": 1}
    | {"mlp_only_layers": [], "use_sliding_window": False, "sliding_window": None, "max_window_layers": 94},
    "qwen3-next-80b-a3b": sizes("qwen3_next", 48, 2048, 5120, 16, 2, 151936, head_dim=256, **UNTIED)
    | {"num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512, "decoder_sparse_step": 1}
    | {"shared_expert_intermediate_size": 512, "mlp_only_layers": [], "full_attention_interval": 4}
    | {"linear_num_value_heads": 32}
    | LINEAR,
    # Text decoders.
    "qwen3.5-27b": QWEN_27B,
    "qwen3.8-27b": QWEN_27B,
    "qwen3.5-35b-a3b": sizes("qwen3_5_moe_text", 40, 2048, 0, 16, 2, 248320, head_dim=256, **UNTIED)
    | {"num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512}
    | {"shared_expert_intermediate_size": 512, "linear_num_value_heads": 32}
    | {"layer_types": [*["linear_attention"] * 3, "full_attention"] * 10}
    | LINEAR,
    "deepseek-v2-lite": sizes("deepseek_v2", 27, 2048, 10944, 16, 16, 102400, **UNTIED)
    | {"kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
    | {"n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 1408}
    | {"first_k_dense_replace": 1, "moe_layer_freq": 1},
    "deepseek-v3": sizes("deepseek_v3", 61, 7168, 18432, 128, 128, 129280, **UNTIED)
    | {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
    | {"n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048}
    | {"first_k_dense_replace": 3, "moe_layer_freq": 1, "num_nextn_predict_layers": 1},
    "minicpm3-4b": sizes("minicpm3", 62, 2560, 6400, 40, 40, 73448)
    | {"kv_lora_rank": 256, "q_lora_rank": 768, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32},
    "glm-4.7-flash": sizes("glm4_moe_lite", 47, 2048, 10240, 20, 20, 154880, **UNTIED)
    | {"kv_lora_rank": 512, "q_lora_rank": 768, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256}
    | {"n_routed_experts": 64, "n_shared_experts": 1, "num_experts_per_tok": 4, "moe_intermediate_size": 1536}
    | {"first_k_dense_replace": 1, "num_nextn_predict_layers": 1},
    "gpt-oss-20b": sizes("gpt_oss", 24, 2880, 2880, 64, 8, 201088, head_dim=64, **UNTIED)
    | {"num_local_experts": 32, "num_experts_per_tok": 4, "experts_per_token": 4, "sliding_window": 128}
    | {"layer_types": ["sliding_attention", "full_attention"] * 12, "attention_bias": True},
    "gpt-oss-120b": sizes("gpt_oss", 36, 2880, 2880, 64, 8, 201088, head_dim=64, **UNTIED)
    | {"num_local_experts": 128, "num_experts_per_tok": 4, "experts_per_token": 4, "sliding_window": 128}
    | {"layer_types": ["sliding_attention", "full_attention"] * 18, "attention_bias": True},
    "glm-4.5": sizes("glm4_moe", 92, 5120, 12288, 96, 8, 151552, head_dim=128, **UNTIED)
    | {"n_routed_experts": 160, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 1536}
    | {"first_k_dense_replace": 3, "attention_bias": True, "use_qk_norm": True, "num_nextn_predict_layers": 1},
    "glm-4.5-air": sizes("glm4_moe", 46, 4096, 10944, 96, 8, 151552, head_dim=128, **UNTIED)
    | {"n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 1408}
    | {"first_k_dense_replace": 1, "attention_bias": True, "use_qk_norm": False, "num_nextn_predict_layers": 1},
    # Its config.json says kimi_k2, and that its network is DeepseekV3ForCausalLM.
    "kimi-k2": sizes("deepseek_v3", 61, 7168, 18432, 64, 64, 163840, **UNTIED)
    | {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
    | {"n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048}
    | {"n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "moe_layer_freq": 1, "num_nextn_predict_layers": 0},
    "mixtral-8x7b": sizes("mixtral", 32, 4096, 14336, 32, 8, 32000, sliding_window=None, **UNTIED)
    | {"num_local_experts": 8, "num_experts_per_tok": 2},
    "mixtral-8x22b": sizes("mixtral", 56, 6144, 16384, 48, 8, 32000, sliding_window=None, **UNTIED)
    | {"num_local_experts": 8, "num_experts_per_tok": 2},
    # Text decoders. Files of the larger ones state no vocabulary and no kind of layer, one no heads: defaults of the class.
    "gemma-3-1b": sizes("gemma3_text", 26, 1152, 6912, 4, 1, 262144, head_dim=256)
    | {"sliding_window": 512, "sliding_window_pattern": 6},
    "gemma-3-4b": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "hidden_size": 2560,
        "intermediate_size": 10240,
    }
    | {"sliding_window": 1024},
    "gemma-3-12b": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 48,
        "hidden_size": 3840,
        "intermediate_size": 15360,
    }
    | {"num_attention_heads": 16, "num_key_value_heads": 8, "sliding_window": 1024},
    "gemma-3-27b": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 62,
        "hidden_size": 5376,
        "intermediate_size": 21504,
    }
    | {"num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128, "sliding_window": 1024},
    "phi-4": sizes("phi3", 40, 5120, 17920, 40, 10, 100352, sliding_window=None, **UNTIED),
    "olmo-2-0425-1b": sizes("olmo2", 16, 2048, 8192, 16, 16, 100352, **UNTIED),
    "olmo-2-1124-7b": sizes("olmo2", 32, 4096, 11008, 32, 32, 100352, **UNTIED),
    "olmo-2-1124-13b": sizes("olmo2", 40, 5120, 13824, 40, 40, 100352, **UNTIED),
    "olmo-2-0325-32b": sizes("olmo2", 64, 5120, 27648, 40, 8, 100352, **UNTIED),
    "smollm3-3b": sizes("smollm3", 36, 2048, 11008, 16, 4, 128256, no_rope_layer_interval=4, **TIED),
    "granite-3.3-2b": sizes("granite", 40, 2048, 8192, 32, 8, 49159, **TIED),
    "granite-3.3-8b": sizes("granite", 40, 4096, 12800, 32, 8, 49159, **TIED),
    "granite-3.1-1b-a400m": sizes("granitemoe", 24, 1024, 512, 16, 8, 49155, **TIED)
    | {"num_local_experts": 32, "num_experts_per_tok": 8},
    "granite-3.1-3b-a800m": sizes("granitemoe", 32, 1536, 512, 24, 8, 49155, **TIED)
    | {"num_local_experts": 40, "num_experts_per_tok": 8},
    "opt-2.7b": opt(32, 2560, 32),
    "opt-6.7b": opt(32, 4096, 32),
    "opt-13b": opt(40, 5120, 40),
    # Not in the catalog: a witness of published counts for other families.
    "mistral-7b-v0.1": sizes("mistral", 32, 4096, 14336, 32, 8, 32000, sliding_window=4096),
    "gemma-2-2b": sizes("gemma2", 26, 2304, 9216, 8, 4, 256000, head_dim=256, sliding_window=4096),
    "phi-2": sizes("phi", 32, 2560, 10240, 32, 32, 51200),
    "gpt2": {
        "model_type": "gpt2",
        "n_layer": 12,
        "n_embd": 768,
        "n_head": 12,
        "vocab_size": 50257,
        "n_positions": 1024,
    },
}
