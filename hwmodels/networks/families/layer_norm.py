"""Families with layer norms, whose norms and often whose matrices have biases: mostly older ones."""

from __future__ import annotations

from typing import Any

from hwmodels.networks.family import Family, Rotary, Running, Setting, Windows, sizes
from hwmodels.networks.settings import Settings
from hwmodels.networks.tensor_names import LLAMA_NORM_BIASES, LLAMA_TENSORS, OPT_TENSORS, STARCODER_TENSORS

__all__ = ["LAYER_NORM"]

_GPT2_SPELLINGS = {
    "num_hidden_layers": ("n_layer",),
    "hidden_size": ("n_embd",),
    "num_attention_heads": ("n_head",),
    "intermediate_size": ("n_inner",),
    "max_position_embeddings": ("n_positions",),
}
_BIASED_NORMS: dict[str, Any] = {"norm_biases": True, "gated_ffn": False}
_OLDER: dict[str, Any] = _BIASED_NORMS | {"free_head_dim": False, "grouped_queries": False}


def _falcon_norms(settings: Settings) -> int:
    if not settings.flag("parallel_attn"):
        return 2
    stated = settings.optional_size("num_ln_in_parallel_attn")
    return 2 if stated == 2 or (stated is None and settings.flag("new_decoder_architecture")) else 1


#: One row per family.
LAYER_NORM: tuple[Family, ...] = (
    Family(
        name="opt",
        defaults=sizes(12, 768, 3072, 12, None, 50272, tied=True, max_position_embeddings=2048, enable_bias=True)
        | {"layer_norm_elementwise_affine": True, "activation_function": "relu"},
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
        running=Running(
            "OPTForCausalLM",
            OPT_TENSORS,
            # The epsilon is torch's own; no file states it.
            computation={"norm": "layer", "norm_eps": 1e-5, "activation": Setting("activation_function")},
            rotary=None,
            must_equal={"word_embed_proj_dim": Setting("hidden_size")},
        ),
        **_OLDER,
    ),
    Family(
        name="phi",
        defaults=sizes(24, 2048, 8192, 32, None, 51200),
        norms_per_layer=1,
        qkv_bias=True,
        o_bias=True,
        ffn_bias=True,
        head_bias=True,
        must_equal={"qk_layernorm": False},
        **_BIASED_NORMS,
    ),
    Family(
        name="starcoder2",
        defaults=sizes(30, 3072, 12288, 24, 2, 49152, tied=True, use_bias=True, sliding_window=None)
        | {"norm_epsilon": 1e-5, "rope_theta": 10_000.0, "max_position_embeddings": 4096}
        | {"hidden_act": "gelu_pytorch_tanh"},
        qkv_bias="use_bias",
        o_bias="use_bias",
        ffn_bias="use_bias",
        windows=Windows("all"),
        running=Running(
            "Starcoder2ForCausalLM",
            STARCODER_TENSORS,
            computation={"norm": "layer", "norm_eps": Setting("norm_epsilon"), "activation": Setting("hidden_act")},
        ),
        **_BIASED_NORMS,
    ),
    Family(
        name="falcon",
        defaults=sizes(32, 4544, None, 71, None, 65024, tied=True, multi_query=True, parallel_attn=True),
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
        **_BIASED_NORMS,
    ),
    Family(
        name="gpt2",
        defaults=sizes(12, 768, None, 12, None, 50257, tied=True, max_position_embeddings=1024),
        spellings=_GPT2_SPELLINGS,
        qkv_bias=True,
        o_bias=True,
        ffn_bias=True,
        learned_positions=0,
        **_OLDER,
    ),
    Family(
        name="gpt_bigcode",
        defaults=sizes(12, 768, None, 12, None, 50257, tied=True, max_position_embeddings=1024, multi_query=True),
        spellings=_GPT2_SPELLINGS,
        qkv_bias=True,
        o_bias=True,
        ffn_bias=True,
        learned_positions=0,
        **_OLDER,
    ),
    Family(
        name="gptj",
        defaults=sizes(28, 4096, None, 16, None, 50400),
        spellings=_GPT2_SPELLINGS,
        norms_per_layer=1,
        ffn_bias=True,
        head_bias=True,
        **_OLDER,
    ),
    Family(
        name="gpt_neox",
        defaults=sizes(44, 6144, 24576, 64, None, 50432, attention_bias=True),
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        ffn_bias=True,
        grouped_queries=False,
        **_BIASED_NORMS,
    ),
    Family(
        name="bloom",
        defaults=sizes(2, 64, None, 8, None, 250880, tied=True),
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
    Family(
        name="stablelm",
        defaults=sizes(32, 2560, 6912, 32, 32, 50304, hidden_act="silu", layer_norm_eps=1e-5)
        | {"rope_theta": 10_000.0, "max_position_embeddings": 4096, "partial_rotary_factor": 0.25},
        norms_per_layer=lambda settings: 1 if settings.flag("use_parallel_residual") else 2,
        norm_biases=True,
        qkv_bias="use_qkv_bias",
        must_equal={"qk_layernorm": False},
        free_head_dim=False,
        running=Running(
            "StableLmForCausalLM",
            LLAMA_TENSORS | LLAMA_NORM_BIASES,
            computation={"norm": "layer", "norm_eps": Setting("layer_norm_eps"), "activation": Setting("hidden_act")},
            rotary=Rotary(partial=True),
            must_equal={"use_parallel_residual": False},
        ),
    ),
    Family(
        name="nemotron",
        defaults=sizes(32, 6144, 24576, 48, None, 256000),
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        ffn_bias="mlp_bias",
        **_BIASED_NORMS,
    ),
)
