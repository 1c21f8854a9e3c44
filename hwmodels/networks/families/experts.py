"""Families with mixtures of experts."""

from __future__ import annotations

from typing import Any

from hwmodels.networks.families.gated import GRANITE, GRANITE_VALUES, HUNYUAN
from hwmodels.networks.family import (
    WINDOWED,
    Experts,
    Family,
    Rotary,
    RouterRule,
    Running,
    Setting,
    Windows,
    sizes,
    stated_values,
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
        defaults=sizes(62, 2560, 6400, 40, 40, 73448, tied=True)
        | {"kv_lora_rank": 256, "q_lora_rank": 768, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32}
        | {"v_head_dim": _shared_width},
        ffn_bias="mlp_bias",
        **LATENT,
    ),
    Family(
        name="youtu",
        defaults=sizes(32, 2048, 6144, 16, None, 128256, tied=True)
        | {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
        | stated_values(1e-6, 10_000.0, 131_072),
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
        defaults=sizes(32, 4096, 14336, 32, 8, 32000, num_experts=8, num_experts_per_tok=2)
        | stated_values(1e-5, 1_000_000.0, 131_072),
        spellings=_OLD_EXPERT_SPELLINGS,
        experts=Experts("all", size="intermediate_size"),
        windows=Windows("all"),
        running=Running("MixtralForCausalLM", MIXTRAL_TENSORS, router=RouterRule()),
    ),
    Family(
        name="qwen2_moe",
        defaults=sizes(24, 2048, 5632, 16, 16, 151936, **WINDOWED)
        | {"num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408, "decoder_sparse_step": 1}
        | {"shared_expert_intermediate_size": 5632, "qkv_bias": True, "norm_topk_prob": False}
        | stated_values(1e-6, 10_000.0, 32_768),
        spellings=_EXPERT_SPELLINGS,
        qkv_bias="qkv_bias",
        experts=Experts("every_nth", shared="shared_expert_intermediate_size", shared_gate=True),
        windows=Windows("every_other_up_to_layer", enabled="use_sliding_window"),
        running=Running("Qwen2MoeForCausalLM", QWEN_MOE_TENSORS, router=RouterRule(renormalised="norm_topk_prob")),
    ),
    Family(
        name="qwen3_moe",
        defaults=sizes(24, 2048, 6144, 32, 4, 151936)
        | {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "decoder_sparse_step": 1}
        | {"use_sliding_window": False, "sliding_window": 4096, "norm_topk_prob": False}
        | stated_values(1e-6, 10_000.0, 32_768),
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
        defaults=sizes(32, 4096, 11008, 32, None, 102400)
        | {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
        | {"num_experts": 64, "n_shared_experts": 2, "moe_intermediate_size": 1407, "first_k_dense_replace": 0}
        | {"n_group": None, "topk_group": None, "topk_method": "greedy", "routed_scaling_factor": 1.0}
        | stated_values(1e-6, 10_000.0, 2048),
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
        defaults=sizes(61, 7168, 18432, 128, None, 129280)
        | {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
        | {"num_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1}
        | {"moe_intermediate_size": 2048, "first_k_dense_replace": 3, "n_group": 8, "topk_group": 4}
        | {"routed_scaling_factor": 2.5, "norm_topk_prob": True}
        | stated_values(1e-6, 10_000.0, 4096),
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
        defaults=sizes(46, 4096, 10944, 96, 8, 151552)
        | {"num_experts": 128, "num_experts_per_tok": 8, "n_shared_experts": 1}
        | {"moe_intermediate_size": 1408, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1}
        | {"routed_scaling_factor": 1.0, "norm_topk_prob": True}
        | stated_values(1e-5, 10_000.0, 131_072, partial_rotary_factor=0.5),
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
            "solar_open": sizes(48, 4096, None, 64, 8, 196608, head_dim=128, moe_intermediate_size=1280)
            | {"first_k_dense_replace": 0, "partial_rotary_factor": 1.0, "rope_theta": 1_000_000.0},
        },
    ),
    Family(
        name="dots1",
        defaults=sizes(62, 4608, 10944, 32, 32, 152064, sliding_window=4096, max_window_layers=62)
        | {"num_experts": None, "num_experts_per_tok": None, "n_shared_experts": None}
        | {"moe_intermediate_size": 1408, "first_k_dense_replace": 0, "n_group": 1, "topk_group": 1}
        | {"routed_scaling_factor": 1.0, "norm_topk_prob": False}
        | stated_values(1e-6, 10_000.0, 2048),
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
        defaults=sizes(62, 3072, 1536, 48, 8, 200064, head_dim=128, num_experts=256, num_experts_per_tok=8)
        | stated_values(1e-6, 5_000_000.0, 196_608),
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
        defaults=sizes(47, 2048, 10240, 20, None, 154880)
        | {"kv_lora_rank": 512, "q_lora_rank": 768, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256}
        | {"num_experts": 64, "num_experts_per_tok": 4, "n_shared_experts": 1}
        | {"moe_intermediate_size": 1536, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1}
        | {"routed_scaling_factor": 1.8, "norm_topk_prob": True}
        | stated_values(1e-5, 10_000.0, 202_752),
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
        defaults=sizes(36, 2880, 2880, 64, 8, 201088, head_dim=64, attention_bias=True)
        | {"num_experts": 128, "num_experts_per_tok": 4, "sliding_window": 128, "sliding_window_pattern": 2}
        | {"swiglu_limit": 7.0}
        | stated_values(1e-5, 150_000.0, 131_072),
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
        defaults=sizes(28, 2560, 12288, 20, 4, 103424, tied=True, num_experts=64, num_experts_per_tok=6)
        | {"moe_intermediate_size": 1536, "n_shared_experts": 2}
        | {"moe_layer_start_index": 1, "moe_layer_end_index": -1, "moe_layer_interval": 1}
        | stated_values(1e-5, 500_000.0, 131_072),
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
        defaults=sizes(32, 4096, 11008, 32, None, 290_943, num_experts=1, num_experts_per_tok=1)
        | {
            "n_shared_experts": 1,
            "num_shared_expert": 1,
            "moe_intermediate_size": lambda settings: settings.size("intermediate_size"),
        }
        | stated_values(1e-5, 10_000.0, 2048),
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
        defaults=sizes(32, 4096, 6400, 32, 8, 32064, num_experts=16, num_experts_per_tok=2),
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
        defaults=sizes(16, 2048, 2048, 16, None, 50304, num_experts=64, num_experts_per_tok=8)
        | stated_values(1e-5, 10_000.0, 4096, norm_topk_prob=False),
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
        defaults=sizes(32, 4096, 11008, 32, None, 32000, num_experts=8, num_experts_per_tok=2) | GRANITE_VALUES,
        spellings=_OLD_EXPERT_SPELLINGS,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        experts=Experts("all", size="intermediate_size"),
        running=_granite("GraniteMoeForCausalLM"),
    ),
    Family(
        name="granitemoeshared",
        defaults=sizes(32, 4096, 11008, 32, None, 32000, num_experts=8, num_experts_per_tok=2)
        | {"shared_intermediate_size": 0}
        | GRANITE_VALUES,
        spellings=_OLD_EXPERT_SPELLINGS,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        experts=Experts("all", size="intermediate_size", shared="shared_intermediate_size"),
        running=_granite("GraniteMoeSharedForCausalLM"),
    ),
)
