"""Families with layer norms, whose norms and often whose matrices have biases: mostly older ones."""

from __future__ import annotations

from typing import Any

from hwmodels.networks.family import Family, Rotary, Running, Setting, Windows
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
        spellings=_GPT2_SPELLINGS,
        qkv_bias=True,
        o_bias=True,
        ffn_bias=True,
        learned_positions=0,
        **_OLDER,
    ),
    Family(
        name="gpt_bigcode",
        spellings=_GPT2_SPELLINGS,
        qkv_bias=True,
        o_bias=True,
        ffn_bias=True,
        learned_positions=0,
        **_OLDER,
    ),
    Family(
        name="gptj",
        spellings=_GPT2_SPELLINGS,
        norms_per_layer=1,
        ffn_bias=True,
        head_bias=True,
        **_OLDER,
    ),
    Family(
        name="gpt_neox",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        ffn_bias=True,
        grouped_queries=False,
        **_BIASED_NORMS,
    ),
    Family(
        name="bloom",
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
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        ffn_bias="mlp_bias",
        **_BIASED_NORMS,
    ),
)
