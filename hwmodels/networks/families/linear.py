"""Families in which most layers have linear attention."""

from __future__ import annotations

from typing import Any

from hwmodels.networks.family import Experts, Family, Rotary, RouterRule, Running, Setting, sizes, stated_values
from hwmodels.networks.tensor_names import (
    CONVOLUTIONS,
    FUSED_LINEAR,
    QWEN_HYBRID_EXPERT_TENSORS,
    QWEN_HYBRID_TENSORS,
    QWEN_NEXT_TENSORS,
    STACKED_EXPERTS,
)

__all__ = ["LINEAR"]

#: Where a file states none.
_SIZES: dict[str, Any] = {
    **{"linear_num_key_heads": 16, "linear_num_value_heads": 32},
    **{"linear_key_head_dim": 128, "linear_value_head_dim": 128},
    **{"linear_conv_kernel_dim": 4, "full_attention_interval": 4},
}

_COMMON: dict[str, Any] = {
    "linear": True,
    "attention_gate": True,
    "qk_norm": "head",
    "qkv_bias": "attention_bias",
    "o_bias": "attention_bias",
    "must_equal": {"attn_output_gate": True},
}

#: What decides values and not sizes, where a file states none.
_VALUES = stated_values(1e-6, 10_000.0, 32_768, partial_rotary_factor=0.25)

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

#: One row per family.
LINEAR: tuple[Family, ...] = (
    Family(
        name="qwen3_next",
        defaults=sizes(48, 2048, 5632, 16, 2, 151936, head_dim=256, **_SIZES)
        | {"num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512, "decoder_sparse_step": 1}
        | {"shared_expert_intermediate_size": 512, "norm_topk_prob": True}
        | _VALUES,
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
        defaults=sizes(32, 4096, 12288, 16, 4, 248320, head_dim=256, **_SIZES) | _VALUES,
        running=Running("Qwen3_5ForCausalLM", QWEN_HYBRID_TENSORS, **_RUNNING),
        **_COMMON,
    ),
    Family(
        name="qwen3_5_moe_text",
        defaults=sizes(40, 2048, None, 16, 2, 248320, head_dim=256, **_SIZES)
        | {"num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512}
        | {"shared_expert_intermediate_size": 512}
        | _VALUES,
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
)
