"""Families in which most layers have linear attention or short convolutions."""

from __future__ import annotations

import dataclasses
from typing import Any

from hwmodels.networks.family import Experts, Family, Rotary, RouterRule, Running, Setting
from hwmodels.networks.settings import Settings
from hwmodels.networks.spec import NetworkSpec
from hwmodels.networks.tensor_names import (
    CONVOLUTIONS,
    FUSED_LFM2,
    FUSED_LINEAR,
    LFM2_CONVOLUTIONS,
    LFM2_TENSORS,
    QWEN_HYBRID_EXPERT_TENSORS,
    QWEN_HYBRID_TENSORS,
    QWEN_NEXT_TENSORS,
    STACKED_EXPERTS,
)

__all__ = ["LINEAR"]


_COMMON: dict[str, Any] = {
    "linear": True,
    "attention_gate": True,
    "qk_norm": "head",
    "qkv_bias": "attention_bias",
    "o_bias": "attention_bias",
    "must_equal": {"attn_output_gate": True},
}


_RUNNING: dict[str, Any] = {
    "computation": {
        "norm": "shifted_rms",
        "norm_eps": Setting("rms_norm_eps"),
        "activation": Setting("hidden_act"),
    },
    "rotary": Rotary(partial=True),
    "unit_axes": CONVOLUTIONS,
    # Of the gate behind linear attention; some releases state it, and transformers reads over it.
    "must_equal": {"output_gate_type": "swish"},
}


def _rounded_width(settings: Settings, spec: NetworkSpec) -> NetworkSpec:
    """LFM2's feed-forward networks have two thirds of the width that files state, rounded up, unless they say otherwise."""
    if not settings.flag("block_auto_adjust_ff_dim"):
        return spec
    width = int(2 * spec.intermediate_size / 3)
    if settings.get("block_ffn_dim_multiplier") is not None:
        multiple = settings.size("block_multiple_of")
        width = -(-int(settings.positive("block_ffn_dim_multiplier") * width) // multiple) * multiple
    if width < 1:
        raise settings.error("intermediate_size", f"is {spec.intermediate_size}; two thirds of it are less than 1")
    return dataclasses.replace(spec, intermediate_size=width)


def _stated_layers(settings: Settings) -> None:
    raise settings.error("layer_types", "is missing; it must say 'conv' or 'full_attention' of each layer")


_LFM2: dict[str, Any] = {
    "linear": True,
    "convolutions": True,
    "qk_norm": "head",
    "must_equal": {"conv_bias": False},
    "announced": ("conv_",),
}
_LFM2_RUNNING: dict[str, Any] = {
    "tensors": LFM2_TENSORS,
    "fused": FUSED_LFM2,
    "unit_axes": LFM2_CONVOLUTIONS,
    "computation": {"norm_eps": Setting("norm_eps"), "activation": "silu"},
}

#: One row per family.
LINEAR: tuple[Family, ...] = (
    Family(
        name="qwen3_next",
        experts=Experts("every_nth", shared="shared_expert_intermediate_size", shared_gate=True),
        running=Running(
            "Qwen3NextForCausalLM",
            QWEN_NEXT_TENSORS,
            FUSED_LINEAR,
            fused_by=dict.fromkeys(FUSED_LINEAR, "key_head"),
            router=RouterRule(renormalised="norm_topk_prob"),
            **_RUNNING,
        ),
        **_COMMON,
    ),
    Family(
        name="qwen3_5_text",
        running=Running("Qwen3_5ForCausalLM", QWEN_HYBRID_TENSORS, **_RUNNING),
        **_COMMON,
    ),
    Family(
        name="qwen3_5_moe_text",
        experts=Experts("all", shared="shared_expert_intermediate_size", shared_gate=True),
        running=Running(
            "Qwen3_5MoeForCausalLM",
            QWEN_HYBRID_EXPERT_TENSORS,
            stacked=STACKED_EXPERTS,
            router=RouterRule(),
            **_RUNNING,
        ),
        **_COMMON,
    ),
    Family(
        name="lfm2",
        spellings={
            "intermediate_size": ("block_ff_dim", "intermediate_size"),
            "tie_word_embeddings": ("tie_embedding", "tie_word_embeddings"),
        },
        beyond=_rounded_width,
        running=Running(
            "Lfm2ForCausalLM",
            # transformers reads over all of them; releases state them.
            must_equal={
                **{"block_use_swiglu": True, "use_pos_enc": True, "num_heads": Setting("num_attention_heads")},
                **dict.fromkeys(("block_dim", "conv_dim", "conv_dim_out"), Setting("hidden_size")),
                "block_norm_eps": Setting("norm_eps"),
            },
            **_LFM2_RUNNING,
        ),
        **_LFM2,
    ),
    Family(
        name="lfm2_moe",
        defaults={"layer_types": _stated_layers},
        spellings={
            "first_k_dense_replace": ("num_dense_layers",),
            "tie_word_embeddings": ("tie_embedding", "tie_word_embeddings"),
        },
        experts=Experts("after_dense", correction_bias=True),
        running=Running(
            "Lfm2MoeForCausalLM",
            router=RouterRule("sigmoid", "norm_topk_prob", "routed_scaling_factor", added=1e-6),
            must_equal={"use_expert_bias": True},
            **_LFM2_RUNNING,
        ),
        **_LFM2,
    ),
)
