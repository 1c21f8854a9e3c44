"""Small configurations whose networks `make_parameter_counts.py` counts, and families' defaults.

Sizes of small cases all differ; the others have nothing but the defaults of the family's configuration class.
"""

from __future__ import annotations

from typing import Any

from parameter_count_releases import TIED, UNTIED, opt, sizes
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

#: Families whose networks differ in nothing but sizes and a flag or two.
_PLAIN = (
    *("llama", "mistral", "qwen2", "qwen3", "glm", "glm4", "gemma", "gemma2", "gemma3_text", "phi", "phi3", "olmo2"),
    *("olmo3", "granite", "starcoder2", "gpt_neox", "cohere", "cohere2", "stablelm", "nemotron", "smollm3", "seed_oss"),
    *("internlm3", "iquestcoder", "cwm", "helium", "arcee", "ministral", "vaultgemma"),
    *("ernie4_5", "exaone4", "ministral3", "hunyuan_v1_dense", "lfm2", "apertus"),
)
_MOE = (
    "mixtral",
    "qwen2_moe",
    "qwen3_moe",
    "phimoe",
    "olmoe",
    "granitemoe",
    "granitemoeshared",
    "gpt_oss",
    "minimax_m2",
)
_DEEPSEEK = ("deepseek_v2", "deepseek_v3", "glm4_moe", "glm4_moe_lite", "dots1")
_HYBRID = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
_HUNYUAN = ("hunyuan_v1_dense", "hunyuan_v1_moe")
_GPT2 = ("gpt2", "gpt_bigcode", "gptj")
#: Families whose keys and values have as many heads as queries, whatever the configuration says.
_UNGROUPED = {"gpt_neox"}
SMALL = {"layers": 5, "hidden": 24, "intermediate": 52, "heads": 6, "kv_heads": 3, "vocab": 97}
_LATENT = {"kv_lora_rank": 10, "q_lora_rank": 14, "qk_nope_head_dim": 9, "qk_rope_head_dim": 6, "v_head_dim": 11}


def small(model_type: str, **others: Any) -> dict[str, Any]:
    """A small config.json; token numbers lie within its vocabulary."""
    heads = {"num_key_value_heads": SMALL["heads"]} if model_type in _UNGROUPED else {}
    heads |= {"head_dim": 4} if model_type in ("ministral", "helium", *_HUNYUAN) else {}  # no default builds
    return sizes(model_type, **SMALL) | heads | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2} | others


def _priced(experts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Small cases of families that are priced only; a file of these states more than sizes."""
    index = {"index_topk": 8, "index_n_heads": 2, "index_head_dim": 8}
    cases = {f"{name} small": small(name, **experts, **_LATENT, **index) for name in ("deepseek_v32", "glm_moe_dsa")}
    shared = ["full", "shared", "full", "full", "shared"]
    cases["glm_moe_dsa shared"] = cases["glm_moe_dsa small"] | {"indexer_types": shared}
    kinds = [*["sliding_attention"] * 2, "full_attention", "sliding_attention", "full_attention"]
    wide = {
        "head_dim": 4,
        "global_head_dim": 8,
        "layer_types": kinds,
        "sliding_window": 7,
        "hidden_size_per_layer_input": 0,
    }
    cases["gemma4_text small"] = small("gemma4_text", **wide, **TIED)
    seven = {"num_experts_per_tok": 2, "moe_intermediate_size": 17}
    chunks = {"head_dim": 4, "intermediate_size_mlp": 31, "interleave_moe_layer_step": 2, "attention_chunk_size": 9}
    cases["llama4_text small"] = small("llama4_text", num_local_experts=7, num_experts_per_tok=1, **chunks, **UNTIED)
    seven |= {"n_routed_experts": 7, "n_shared_experts": 1, "moe_shared_expert_intermediate_size": 19, "head_dim": 4}
    states = {"mamba_num_heads": 4, "mamba_head_dim": 6, "n_groups": 2, "ssm_state_size": 5, "conv_kernel": 3}
    blocks = {"hybrid_override_pattern": "M-*EM"}
    cases["nemotron_h small"] = small("nemotron_h", **states, **seven, **blocks, **UNTIED)
    return cases | {"nemotron_h latent": cases["nemotron_h small"] | {"moe_latent_size": 11}}


def variants() -> dict[str, dict[str, Any]]:
    """The small cases and those of defaults."""
    cases: dict[str, dict[str, Any]] = {}
    for family in _PLAIN:
        cases[f"{family} small"] = small(family, **UNTIED)
        cases[f"{family} tied"] = small(family, **TIED)
    for family in (
        "llama",
        "qwen3",
        "olmo2",
        "olmo3",
        "granite",
        "gemma",
        "gemma2",
        "gemma3_text",
        "cohere",
        "nemotron",
    ):
        cases[f"{family} biased"] = small(family, attention_bias=True, mlp_bias=True)
    for family in ("smollm3", "seed_oss", "phimoe", "olmoe", "granitemoe", "granitemoeshared", "qwen3_moe", "cohere2"):
        cases[f"{family} biased"] = small(family, attention_bias=True, mlp_bias=True)
    for family in ("glm", "glm4", "gpt_neox", "gpt_oss"):
        cases[f"{family} unbiased"] = small(family, attention_bias=False)
    for family in ("llama", "mistral", "mixtral", "qwen3", "glm4", "gemma3_text", "nemotron", "ernie4_5"):
        cases[f"{family} wide heads"] = small(family, head_dim=10)
    for family in ("qwen2", "qwen3"):
        cases[f"{family} windows"] = small(family, use_sliding_window=True, sliding_window=7, max_window_layers=2)
        late = {"num_hidden_layers": 31, "use_sliding_window": True, "sliding_window": 7}
        cases[f"{family} late windows"] = small(family) | late
    cases["qwen2_moe late windows"] = small("qwen2_moe", num_experts=4) | late
    cases["qwen2_moe windows"] = small("qwen2_moe", use_sliding_window=True, sliding_window=7, max_window_layers=3)
    cases["gemma3_text windows"] = small("gemma3_text", sliding_window=7, sliding_window_pattern=3)
    cases["cohere2 windows"] = small("cohere2", sliding_window=7, sliding_window_pattern=2)
    for family in _MOE:
        experts = {"num_experts_per_tok": 2, "moe_intermediate_size": 17, "shared_expert_intermediate_size": 19}
        key = "num_experts" if family in ("qwen2_moe", "qwen3_moe", "olmoe") else "num_local_experts"
        cases[f"{family} small"] = small(family, **experts, **{key: 7}, **UNTIED)
    cases["granitemoeshared shared"] = small("granitemoeshared", num_local_experts=4, shared_intermediate_size=23)
    cases["phimoe head bias"] = small("phimoe", num_local_experts=4, lm_head_bias=True)
    for family in ("qwen2_moe", "qwen3_moe"):
        some = {"num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 17}
        cases[f"{family} every second"] = small(family, **some, decoder_sparse_step=2)
        cases[f"{family} some dense"] = small(family, **some, mlp_only_layers=[1, 4])
        cases[f"{family} both"] = small(family, **some, decoder_sparse_step=2, mlp_only_layers=[2, 3])
    for family in _HYBRID:
        linear = {"linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 5}
        linear |= {"linear_value_head_dim": 7, "linear_conv_kernel_dim": 3, "head_dim": 10}
        experts = {"num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 17}
        linear |= {} if family == "qwen3_5_text" else experts | {"shared_expert_intermediate_size": 19}
        cases[f"{family} small"] = small(family, **linear, **UNTIED)
        cases[f"{family} biased"] = small(family, **linear, attention_bias=True)
        kinds = ["full_attention", "linear_attention", "full_attention", "full_attention", "linear_attention"]
        cases[f"{family} listed"] = small(family, **linear, layer_types=kinds, **TIED)
        cases[f"{family} every second"] = small(family, **linear, full_attention_interval=2)
    cases["qwen3_next some dense"] = cases["qwen3_next small"] | {"mlp_only_layers": [0, 3]}
    cases["qwen2_moe unbiased"] = small("qwen2_moe", qkv_bias=False)
    for family in _DEEPSEEK:
        experts = {"n_routed_experts": 8, "n_shared_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 17}
        latent = {} if family in ("glm4_moe", "dots1") else _LATENT
        groups = {"n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
        cases[f"{family} small"] = small(family, **experts, **latent, **groups)
        cases[f"{family} biased"] = small(family, **experts, **latent, **groups, attention_bias=True)
        if latent:
            cases[f"{family} full queries"] = small(family, **experts, **(latent | {"q_lora_rank": None}), **groups)
        if family != "glm4_moe_lite":
            cases[f"{family} three dense"] = small(
                family, **experts, **latent, **(groups | {"first_k_dense_replace": 3})
            )
    ranks = {key: value for key, value in _LATENT.items() if key != "v_head_dim"}
    convolutions = {"conv_L_cache": 4, "block_multiple_of": 6, "full_attn_idxs": [1, 4]}
    cases["lfm2 convolutions"] = small("lfm2", **convolutions, **TIED)
    cases["lfm2 stated width"] = small("lfm2", **convolutions, block_auto_adjust_ff_dim=False)
    routed = {"num_experts": 7, "num_experts_per_tok": 2, "moe_intermediate_size": 17, "num_dense_layers": 1}
    kinds = ["conv", "full_attention", "conv", "conv", "full_attention"]
    cases["lfm2_moe small"] = small("lfm2_moe", **routed, layer_types=kinds, conv_L_cache=4, **TIED)
    routed = {"moe_num_experts": 7, "moe_k": 2, "moe_intermediate_size": 17, "moe_num_shared_experts": 2}
    cases["ernie4_5_moe small"] = small("ernie4_5_moe", **routed, **UNTIED)
    cases["ernie4_5_moe interval"] = small("ernie4_5_moe", **routed, moe_layer_interval=2, moe_layer_end_index=2)
    cases["hunyuan_v1_moe small"] = small("hunyuan_v1_moe", num_experts=7, moe_topk=[2] * 5, **UNTIED)
    cases["hunyuan_v1_moe biased"] = small("hunyuan_v1_moe", num_experts=3, moe_topk=2, attention_bias=True)
    routed = {"n_routed_experts": 8, "n_shared_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 17}
    cases["solar_open small"] = small("solar_open", **routed, head_dim=10, attention_bias=True, **UNTIED)
    cases["youtu small"] = small("youtu", **_LATENT, **UNTIED)
    cases["youtu biased"] = small("youtu", **(_LATENT | {"q_lora_rank": None}), attention_bias=True)
    cases["apertus biased"] = small("apertus", attention_bias=True)
    cases["minicpm3 small"] = small("minicpm3", **ranks, **UNTIED)
    cases["minicpm3 wide values"] = small("minicpm3", **_LATENT, **TIED)
    cases["minicpm3 biased"] = small("minicpm3", **ranks, v_head_dim=None, attention_bias=True, mlp_bias=True)
    cases["minicpm3 full queries"] = small("minicpm3", **(ranks | {"q_lora_rank": None}))
    cases["dots1 windows"] = cases["dots1 small"] | {"sliding_window": 7, "max_window_layers": 2}
    cases["glm4_moe normed"] = cases["glm4_moe small"] | {"use_qk_norm": True, "head_dim": 10}
    kinds = ["dense", "sparse", "dense", "dense", "sparse"]
    cases["glm4_moe_lite pattern"] = cases["glm4_moe_lite small"] | {"mlp_layer_types": kinds}
    cases |= _priced(experts | {"n_group": 1, "topk_group": 1, "first_k_dense_replace": 1})
    cases["cohere normed"] = small("cohere", use_qk_norm=True)
    cases["stablelm parallel"] = small("stablelm", use_parallel_residual=True, use_qkv_bias=True)
    cases["starcoder2 unbiased"] = small("starcoder2", use_bias=False)
    cases["ernie4_5 biased"] = small("ernie4_5", use_bias=True)
    cases["seed_oss output bias"] = small("seed_oss", attention_bias=False, attention_out_bias=True)
    for family in _GPT2:
        tokens = {"bos_token_id": 1, "eos_token_id": 2}
        shape = {"n_layer": 3, "n_embd": 20, "n_head": 5, "vocab_size": 97, "n_positions": 33, "rotary_dim": 4}
        cases[f"{family} small"] = {"model_type": family, **shape, **tokens}
        cases[f"{family} inner"] = {"model_type": family, **shape, **tokens, "n_inner": 31, **UNTIED}
    cases["gpt_bigcode multi head"] = cases["gpt_bigcode small"] | {"multi_query": False}
    falcon = {
        "model_type": "falcon",
        "num_hidden_layers": 3,
        "hidden_size": 24,
        "num_attention_heads": 6,
        "vocab_size": 97,
    }
    cases["falcon small"] = falcon
    cases["falcon sequential"] = falcon | {"parallel_attn": False, "multi_query": False, "bias": True, "alibi": True}
    new = {"new_decoder_architecture": True, "num_kv_heads": 2, "ffn_hidden_size": 31}
    cases["falcon new"] = falcon | new
    cases["falcon new, one norm"] = falcon | new | {"num_ln_in_parallel_attn": 1}
    cases["bloom small"] = {"model_type": "bloom", "n_layer": 3, "hidden_size": 24, "n_head": 6, "vocab_size": 97}
    cases["opt small"] = opt(3, 24, 6) | {"ffn_dim": 31, "max_position_embeddings": 29, "vocab_size": 97}
    cases["opt unbiased"] = cases["opt small"] | {"enable_bias": False, **UNTIED}
    for family in (
        *_PLAIN,
        *_MOE,
        *_DEEPSEEK,
        *_HYBRID,
        "ernie4_5_moe",
        "hunyuan_v1_moe",
        "lfm2_moe",
        "solar_open",
        "youtu",
        "minicpm3",
        "opt",
        "falcon",
        "bloom",
        *_GPT2,
    ):
        config = CONFIG_MAPPING[family]()
        own = {"num_hidden_layers": "n_layer", "hidden_size": "n_embd"} if family in _GPT2 else {}
        own |= {"num_hidden_layers": "n_layer"} if family == "bloom" else {}
        cases[f"{family} defaults"] = {
            "model_type": family,
            own.get("num_hidden_layers", "num_hidden_layers"): 13,
            own.get("hidden_size", "hidden_size"): config.hidden_size * 3,
            **({"num_experts_per_tok": 6} if family == "deepseek_v2" else {}),
            **({"n_routed_experts": 8, "num_experts_per_tok": 6, "n_shared_experts": 1} if family == "dots1" else {}),
            **({"layer_types": ["conv"] * 12 + ["full_attention"]} if family == "lfm2_moe" else {}),
            **({"word_embed_proj_dim": config.hidden_size * 3} if family == "opt" else {}),
            **({"head_dim": 384} if family in ("ministral", "helium", *_HUNYUAN) else {}),
            **({"num_key_value_heads": 12} if family == "nemotron" else {}),  # no default builds
        }
    return cases
