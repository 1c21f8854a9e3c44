"""Families with mixtures of experts."""

from __future__ import annotations

from typing import Any

from hwmodels.networks.families.gated import GRANITE, HUNYUAN
from hwmodels.networks.family import (
    Experts,
    Family,
    Rotary,
    RouterRule,
    Running,
    Setting,
    Windows,
)
from hwmodels.networks.settings import Settings
from hwmodels.networks.tensor_names import (
    ERNIE_MOE_TENSORS,
    EXPERT_TENSORS,
    FUSED_EXPERTS,
    FUSED_GRANITE_EXPERTS,
    FUSED_LATENT,
    GPT_OSS_TENSORS,
    GRANITE_EXPERT_TENSORS,
    HUNYUAN_MOE_TENSORS,
    LATENT_TENSORS,
    MIXTRAL_TENSORS,
    QWEN_MOE_TENSORS,
    STACKED_EXPERTS,
)

__all__ = ["EXPERTS", "LATENT", "LATENT_DENSE"]


#: Of latent attention: keys and values have as many heads as queries, biases are of what reads or writes the residual stream.
LATENT: dict[str, Any] = {
    "latent": True,
    "qkv_bias": "attention_bias",
    "o_bias": "attention_bias",
    "grouped_queries": False,
    "free_head_dim": False,
}


def _shared_width(settings: Settings) -> int:
    """Width of a head's values where a file of MiniCPM3 has none, as in its release."""
    hidden, heads = settings.size("hidden_size"), settings.size("num_attention_heads")
    if hidden % heads:
        raise settings.error(
            "hidden_size", f"is {hidden}, which {heads} heads do not divide; it must be a multiple of them"
        )
    return hidden // heads


#: One row per family.
LATENT_DENSE: tuple[Family, ...] = (
    Family(
        name="minicpm3",
        defaults={"v_head_dim": _shared_width},
        ffn_bias="mlp_bias",
        **LATENT,
    ),
    Family(
        name="youtu",
        running=Running(
            "YoutuForCausalLM",
            LATENT_TENSORS,
            FUSED_LATENT,
            rotary=Rotary(interleaved=True, scores=True),
            must_equal={"rope_interleave": True},
            fused_by=dict.fromkeys(FUSED_LATENT, "head"),
        ),
        **LATENT,
    ),
)


_EXPERT_SPELLINGS = {"num_experts": ("n_routed_experts", "num_local_experts")}
_OLD_EXPERT_SPELLINGS = {"num_experts": ("num_local_experts", "n_routed_experts")}

#: Routers of GLM-4 and of DeepSeek-V3.
_SIGMOID = RouterRule("sigmoid", "norm_topk_prob", "routed_scaling_factor", ("n_group", "topk_group"))


def _granite(architecture: str) -> Running:
    return Running(
        architecture, GRANITE_EXPERT_TENSORS, FUSED_GRANITE_EXPERTS, computation=GRANITE, router=RouterRule()
    )


#: One row per family.
EXPERTS: tuple[Family, ...] = (
    Family(
        name="mixtral",
        spellings=_OLD_EXPERT_SPELLINGS,
        experts=Experts("all", size="intermediate_size"),
        windows=Windows("all"),
        running=Running("MixtralForCausalLM", MIXTRAL_TENSORS, router=RouterRule()),
    ),
    Family(
        name="qwen2_moe",
        spellings=_EXPERT_SPELLINGS,
        qkv_bias="qkv_bias",
        experts=Experts("every_nth", shared="shared_expert_intermediate_size", shared_gate=True),
        windows=Windows("every_other_up_to_layer", enabled="use_sliding_window"),
        running=Running("Qwen2MoeForCausalLM", QWEN_MOE_TENSORS, router=RouterRule(renormalised="norm_topk_prob")),
    ),
    Family(
        name="qwen3_moe",
        spellings=_EXPERT_SPELLINGS,
        qk_norm="head",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        experts=Experts("every_nth"),
        windows=Windows("all", enabled="use_sliding_window"),
        running=Running(
            "Qwen3MoeForCausalLM",
            EXPERT_TENSORS,
            router=RouterRule(renormalised="norm_topk_prob"),
            # Of Qwen3-VL, all experts of a layer in one tensor: (expert, input, output).
            stacked=STACKED_EXPERTS,
            transposed=frozenset(STACKED_EXPERTS),
        ),
        # The base as in Qwen3-VL without experts; releases state the last one, which transformers does always.
        also={
            "qwen3_vl_moe_text": {"rope_theta": None, "max_position_embeddings": 128_000, "norm_topk_prob": True}
            | {"num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408}
        },
    ),
    Family(
        name="deepseek_v2",
        spellings=_OLD_EXPERT_SPELLINGS,
        experts=Experts("after_dense", shared="n_shared_experts"),
        must_equal={"moe_layer_freq": 1, "mlp_bias": False},
        running=Running(
            "DeepseekV2ForCausalLM",
            LATENT_TENSORS,
            FUSED_LATENT,
            rotary=Rotary(interleaved=True, scores=True),
            router=RouterRule(
                renormalised=False,
                scale="routed_scaling_factor",
                groups=("n_group", "topk_group"),
                group_score="largest",
                grouped_by=("topk_method", "greedy", "group_limited_greedy"),
            ),
            # transformers reads over these two; what they ask for is another network.
            must_equal={"norm_topk_prob": False, "scoring_func": "softmax"},
            fused_by=dict.fromkeys(FUSED_LATENT, "head"),
        ),
        **LATENT,
    ),
    Family(
        name="deepseek_v3",
        spellings=_OLD_EXPERT_SPELLINGS,
        experts=Experts("after_dense", shared="n_shared_experts", correction_bias=True),
        must_equal={"moe_layer_freq": 1},
        running=Running(
            "DeepseekV3ForCausalLM",
            LATENT_TENSORS,
            FUSED_LATENT,
            rotary=Rotary(interleaved=True, scores=True),
            router=_SIGMOID,
            must_equal={"rope_interleave": True, "scoring_func": "sigmoid", "topk_method": "noaux_tc"},
            fused_by=dict.fromkeys(FUSED_LATENT, "head"),
        ),
        # Releases of Kimi K2 call it so, beside a copy of DeepSeek-V3's code.
        also={"kimi_k2": {}},
        **LATENT,
    ),
    Family(
        name="glm4_moe",
        spellings=_OLD_EXPERT_SPELLINGS,
        qk_norm="optional_head",
        qkv_bias="attention_bias",
        experts=Experts("after_dense", shared="n_shared_experts", correction_bias=True),
        running=Running(
            "Glm4MoeForCausalLM",
            EXPERT_TENSORS,
            rotary=Rotary(partial=True),
            router=_SIGMOID,
            stacked=STACKED_EXPERTS,  # in GLM-4.6V
        ),
        also={
            # Positions of images have three coordinates, those of text one.
            "glm4v_moe_text": {"vocab_size": 151424, "max_position_embeddings": 65_536, "attention_bias": True},
            # Without dense layers.
            "solar_open": {
                **{"num_hidden_layers": 48, "hidden_size": 4096, "intermediate_size": None, "num_attention_heads": 64},
                **{"num_key_value_heads": 8, "vocab_size": 196608, "tie_word_embeddings": False, "head_dim": 128},
                **{"moe_intermediate_size": 1280, "first_k_dense_replace": 0},
                **{"partial_rotary_factor": 1.0, "rope_theta": 1_000_000.0},
            },
        },
    ),
    Family(
        name="dots1",
        spellings=_OLD_EXPERT_SPELLINGS,
        qk_norm="head",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        experts=Experts("after_dense", shared="n_shared_experts", correction_bias=True),
        windows=Windows("from_layer"),
        running=Running("Dots1ForCausalLM", EXPERT_TENSORS, router=_SIGMOID),
    ),
    Family(
        name="minimax_m2",
        spellings={"num_experts": ("num_local_experts",)},
        qk_norm="all",
        experts=Experts("all", size="intermediate_size", correction_bias=True),
        running=Running(
            "MiniMaxM2ForCausalLM",
            MIXTRAL_TENSORS,
            rotary=Rotary(partial=True, elements="rotary_dim"),
            router=RouterRule("sigmoid"),
            # transformers reads over all of them; releases state them.
            must_equal={
                **{"use_qk_norm": True, "qk_norm_type": "per_layer", "scoring_func": "sigmoid"},
                **{"use_routing_bias": True, "shared_intermediate_size": 0},
            },
        ),
    ),
    Family(
        name="glm4_moe_lite",
        spellings=_OLD_EXPERT_SPELLINGS,
        experts=Experts("listed", shared="n_shared_experts", correction_bias=True),
        running=Running(
            "Glm4MoeLiteForCausalLM",
            LATENT_TENSORS,
            FUSED_LATENT,
            rotary=Rotary(interleaved=True, scores=True),
            router=_SIGMOID,
            # transformers reads over the second; `mlp_layer_types` counts there.
            must_equal={"rope_interleave": True, "first_k_dense_replace": 1},
            fused_by=dict.fromkeys(FUSED_LATENT, "head"),
        ),
        **LATENT,
    ),
    Family(
        name="gpt_oss",
        # Releases have both spellings of the second; transformers goes by the last one.
        spellings={
            "num_experts": ("num_local_experts",),
            "num_experts_per_tok": ("experts_per_token", "num_experts_per_tok"),
        },
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        learned_sinks=True,
        experts=Experts("all", size="intermediate_size", biases=True, clamp="swiglu_limit"),
        windows=Windows("all_but_every_nth"),
        running=Running(
            "GptOssForCausalLM",
            GPT_OSS_TENSORS,
            FUSED_EXPERTS,
            rotary=Rotary(
                default={
                    **{"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False},
                    "original_max_position_embeddings": 4096,
                }
            ),
            router=RouterRule(),
            # Constants of the experts' gate.
            must_equal={"hidden_act": "silu", "swiglu_alpha": 1.702},
            fused_by=dict.fromkeys(FUSED_EXPERTS, "row"),
            transposed=frozenset(GPT_OSS_TENSORS[kind] for kind in ("expert_gate", "expert_down")),
            packed="mxfp4",
        ),
    ),
    Family(
        name="ernie4_5_moe",
        spellings={
            "num_experts": ("moe_num_experts",),
            "num_experts_per_tok": ("moe_k",),
            "n_shared_experts": ("moe_num_shared_experts",),
        },
        experts=Experts("interval", shared="n_shared_experts", correction_bias=True),
        must_equal={"use_bias": False},
        running=Running(
            "Ernie4_5_MoeForCausalLM",
            ERNIE_MOE_TENSORS,
            rotary=Rotary(interleaved=True),
            router=RouterRule(),
            must_equal={"moe_norm_min": 1e-12},
            unit_axes=frozenset({ERNIE_MOE_TENSORS["correction_bias"]}),
        ),
    ),
    Family(
        name="hunyuan_v1_moe",
        defaults={"moe_intermediate_size": lambda settings: settings.size("intermediate_size")},
        spellings={
            "head_dim": ("attention_head_dim", "head_dim"),
            "num_experts": ("num_local_experts", "num_experts"),
            "num_experts_per_tok": ("num_experts_per_tok", "moe_topk"),
        },
        qk_norm="head",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        experts=Experts("all", shared="n_shared_experts"),
        must_equal={"use_cla": False, "use_mla": False, "use_qk_norm": True, "mlp_bias": False}
        | {"use_mixed_mlp_moe": True, "moe_layer_num_skipped": 0, "num_shared_expert": 1},
        announced=("cla_share_factor",),
        running=Running(
            "HunYuanMoEV1ForCausalLM",
            HUNYUAN_MOE_TENSORS,
            router=RouterRule(),
            # transformers reads over all of them; releases state them.
            must_equal={
                **{"use_rotary_pos_emb": True, "norm_topk_prob": True, "group_limited_greedy": False},
                **{"moe_intermediate_size": Setting("intermediate_size")},
            },
            **HUNYUAN,
        ),
    ),
    Family(
        name="phimoe",
        spellings=_OLD_EXPERT_SPELLINGS,
        norm_biases=True,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        head_bias="lm_head_bias",
        experts=Experts("all", size="intermediate_size"),
        windows=Windows("all"),
    ),
    Family(
        name="olmoe",
        spellings=_EXPERT_SPELLINGS,
        qk_norm="all",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        experts=Experts("all", size="intermediate_size"),
        running=Running(
            "OlmoeForCausalLM",
            EXPERT_TENSORS,
            router=RouterRule(renormalised="norm_topk_prob"),
            must_equal={"clip_qkv": None},
        ),
    ),
    Family(
        name="granitemoe",
        spellings=_OLD_EXPERT_SPELLINGS,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        experts=Experts("all", size="intermediate_size"),
        running=_granite("GraniteMoeForCausalLM"),
    ),
    Family(
        name="granitemoeshared",
        spellings=_OLD_EXPERT_SPELLINGS,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        experts=Experts("all", size="intermediate_size", shared="shared_intermediate_size"),
        running=_granite("GraniteMoeSharedForCausalLM"),
    ),
)
