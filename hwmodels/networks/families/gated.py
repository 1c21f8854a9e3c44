"""Dense families with RMS norms and gated feed-forward networks."""

from __future__ import annotations

import dataclasses
from typing import Any

from hwmodels.networks.family import (
    LLAMA_LIKE,
    Family,
    Rotary,
    Running,
    Setting,
    Windows,
)
from hwmodels.networks.settings import Settings
from hwmodels.networks.spec import NetworkSpec
from hwmodels.networks.tensor_names import (
    APERTUS_TENSORS,
    FUSED_ALONE,
    FUSED_GATE,
    FUSED_QKV,
    GLM4_POST_NORMS,
    GRANITE_EXPERT_TENSORS,
    HUNYUAN_TENSORS,
    LLAMA_TENSORS,
    SANDWICH_TENSORS,
    SHARED_ALONE,
)

__all__ = ["GATED", "GRANITE", "HUNYUAN"]


_NORM = {"norm_eps": Setting("rms_norm_eps")}
_LLAMA = _NORM | {"activation": Setting("hidden_act")}
#: Of networks with norms behind attention and feed-forward alone.
_NORMS_AFTER = _LLAMA | {"pre_norms": False, "post_norms": True}
#: Of Gemma's networks: scales are stored less 1, the embedding is multiplied by the root of its width.
_GEMMA: dict[str, Any] = _NORM | {
    "norm": "shifted_rms",
    "post_norms": True,
    "activation": Setting("hidden_activation"),
    "embedding_scale": Setting("hidden_size", power=0.5),
    "score_scale": Setting("query_pre_attn_scalar", power=-0.5),
    "logit_cap": Setting("final_logit_softcapping"),
}
#: Of the first ones, without norms behind blocks, caps and scales of scores.
_GEMMA_1 = {name: _GEMMA[name] for name in ("norm", "norm_eps", "embedding_scale")} | {
    "activation": Setting("hidden_act")
}


def _stated_layers(settings: Settings) -> None:
    raise NotImplementedError(
        f"{settings.prefix}layer_types is missing: all layers are state-space ones then; allowed is a list that says "
        "'attention' of each"
    )


#: Of Cohere's networks, whose attention and feed-forward network both read a layer's input.
_COHERE: dict[str, Any] = {
    **{"norm": "unbiased_layer", "norm_eps": Setting("layer_norm_eps"), "parallel": True},
    **{"activation": Setting("hidden_act"), "logit_divisor": Setting("logit_scale", power=-1)},
}
#: Of Granite's networks, which scale embedding, scores, residuals and logits.
GRANITE = _LLAMA | {
    "embedding_scale": Setting("embedding_multiplier"),
    "score_scale": Setting("attention_multiplier"),
    "residual_scale": Setting("residual_multiplier"),
    "logit_divisor": Setting("logits_scaling"),
}
#: Of Hunyuan's networks, with experts or without: norms after a rotation whose base may be stretched.
HUNYUAN: dict[str, Any] = {
    "computation": _LLAMA | {"qk_norm_last": True},
    "rotary": Rotary(stretched=True),
}


def _with_xielu(settings: Settings, spec: NetworkSpec) -> NetworkSpec:
    return dataclasses.replace(spec, xielu=True)


#: One row per family.
GATED: tuple[Family, ...] = (
    dataclasses.replace(
        LLAMA_LIKE,
        name="llama",
        running=Running("LlamaForCausalLM", LLAMA_TENSORS),
    ),
    dataclasses.replace(
        LLAMA_LIKE,
        name="internlm3",
        spellings={"attention_bias": ("qkv_bias",), "mlp_bias": ("bias",)},
        running=Running("InternLM3ForCausalLM", LLAMA_TENSORS),
    ),
    dataclasses.replace(
        LLAMA_LIKE,
        name="iquestcoder",
        must_equal={"clip_qkv": None, "use_sliding_window": False},
        running=Running("IQuestCoderForCausalLM", LLAMA_TENSORS),
    ),
    dataclasses.replace(
        LLAMA_LIKE,
        name="helium",
        # Its matrix of what attention gives has none.
        o_bias=False,
        running=Running("HeliumForCausalLM", LLAMA_TENSORS, rotary=Rotary(interleaved=True)),
    ),
    dataclasses.replace(
        LLAMA_LIKE,
        name="arcee",
        gated_ffn=False,
        running=Running("ArceeForCausalLM", LLAMA_TENSORS),
    ),
    Family(
        name="apertus",
        qk_norm="head",
        gated_ffn=False,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        must_equal={"hidden_act": "xielu", "mlp_bias": False, "post_norm": False, "qk_norm": True},
        beyond=_with_xielu,
        running=Running(
            "ApertusForCausalLM",
            APERTUS_TENSORS,
            computation=_NORM | {"activation": "silu"},  # which no block reads beside `xielu`
            rotary=Rotary(
                default={
                    **{"rope_type": "llama3", "rope_theta": 12_000_000.0, "factor": 8.0, "low_freq_factor": 1.0},
                    **{"high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
                }
            ),
        ),
    ),
    Family(
        name="mistral",
        windows=Windows("all"),
        running=Running("MistralForCausalLM", LLAMA_TENSORS),
    ),
    Family(
        name="ministral",
        windows=Windows("listed"),
        running=Running("MinistralForCausalLM", LLAMA_TENSORS),
    ),
    Family(
        name="ministral3",
        windows=Windows("all"),
        running=Running(
            "Ministral3ForCausalLM",
            LLAMA_TENSORS,
            rotary=Rotary(
                default={
                    **{"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0},
                    **{"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1},
                    "original_max_position_embeddings": 16_384,
                },
                query_growth="llama_4_scaling_beta",
            ),
        ),
    ),
    Family(
        name="cwm",
        ffn_bias="mlp_bias",
        windows=Windows("all_behind_every_nth"),
        running=Running("CwmForCausalLM", LLAMA_TENSORS),
    ),
    Family(
        name="qwen2",
        # MiMo-7B: Qwen2 with a layer for further tokens. Positions of images have three coordinates, those of text one.
        also={"mimo": {}} | {name: {"rope_theta": 1_000_000.0} for name in ("qwen2_vl_text", "qwen2_5_vl_text")},
        qkv_bias=True,
        windows=Windows("from_layer", enabled="use_sliding_window"),
        running=Running("Qwen2ForCausalLM", LLAMA_TENSORS),
    ),
    Family(
        name="qwen3",
        qk_norm="head",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        windows=Windows("from_layer", enabled="use_sliding_window"),
        running=Running("Qwen3ForCausalLM", LLAMA_TENSORS),
        # Positions of images have three coordinates, those of text one. The base is 5,000,000 in releases and in transformers 4
        # by default, 500,000 in transformers 5.
        also={"qwen3_vl_text": {"rope_theta": None, "max_position_embeddings": 128_000}},
    ),
    Family(
        name="glm",
        running=Running("GlmForCausalLM", LLAMA_TENSORS, FUSED_GATE, rotary=Rotary(interleaved=True, partial=True)),
        qkv_bias="attention_bias",
    ),
    Family(
        name="glm4",
        norms_per_layer=4,
        qkv_bias="attention_bias",
        running=Running(
            "Glm4ForCausalLM",
            LLAMA_TENSORS | GLM4_POST_NORMS,
            FUSED_GATE,
            _LLAMA | {"post_norms": True},
            Rotary(interleaved=True, partial=True),
        ),
        # Positions of images have three coordinates, those of text one.
        also={
            "glm4v_text": {"head_dim": None, "partial_rotary_factor": 1.0}
            | {"rms_norm_eps": 1e-5, "max_position_embeddings": 32_768}
        },
    ),
    Family(
        name="gemma",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        must_equal={"use_bidirectional_attention": False},
        running=Running("GemmaForCausalLM", LLAMA_TENSORS, computation=_GEMMA_1),
    ),
    Family(
        name="vaultgemma",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        windows=Windows("all_but_every_nth"),
        running=Running(
            "VaultGemmaForCausalLM",
            LLAMA_TENSORS | {"mlp_norm": SANDWICH_TENSORS["mlp_norm"]},
            computation=_GEMMA | {"score_cap": Setting("attn_logit_softcapping"), "post_norms": False},
        ),
    ),
    Family(
        name="gemma2",
        norms_per_layer=4,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        windows=Windows("all_but_every_nth"),
        must_equal={"use_bidirectional_attention": False},
        running=Running(
            "Gemma2ForCausalLM", SANDWICH_TENSORS, computation=_GEMMA | {"score_cap": Setting("attn_logit_softcapping")}
        ),
    ),
    Family(
        name="gemma3_text",
        spellings={"sliding_window_pattern": ("_sliding_window_pattern",)},  # of transformers 5
        norms_per_layer=4,
        qk_norm="head",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        windows=Windows("all_but_every_nth"),
        must_equal={"use_bidirectional_attention": False},
        running=Running(
            "Gemma3ForCausalLM",
            SANDWICH_TENSORS,
            computation=_GEMMA,
            rotary=Rotary(local_theta="rope_local_base_freq"),
            # Its configuration class has the key, its attention does not heed it.
            must_equal={"attn_logit_softcapping": None},
        ),
    ),
    Family(
        name="phi3",
        windows=Windows("all"),
        running=Running(
            "Phi3ForCausalLM",
            LLAMA_TENSORS,
            FUSED_QKV | FUSED_GATE,
            rotary=Rotary(partial=True, longrope_spellings=("su", "yarn")),
        ),
    ),
    Family(
        name="olmo2",
        qk_norm="all",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        running=Running("Olmo2ForCausalLM", SANDWICH_TENSORS, computation=_NORMS_AFTER),
    ),
    Family(
        name="olmo3",
        qk_norm="all",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        windows=Windows("all_but_every_nth"),
        running=Running(
            "Olmo3ForCausalLM",
            SANDWICH_TENSORS,
            computation=_NORMS_AFTER,
            # One base for all layers; scaled frequencies are of layers without a window.
            rotary=Rotary(local_theta="rope_theta"),
            # transformers 5 gives another base of the file to layers without a window alone, transformers 4 to all: then
            # `rope_parameters` must say it for each.
            must_equal={"rope_theta": 500_000.0},
        ),
    ),
    Family(
        name="exaone4",
        qk_norm="head",
        windows=Windows("all_but_every_nth"),
        running=Running(
            "Exaone4ForCausalLM",
            SANDWICH_TENSORS,
            computation=_NORMS_AFTER,
            rotary=Rotary(windowed="stated"),
        ),
    ),
    dataclasses.replace(
        LLAMA_LIKE,
        name="granite",
        running=Running("GraniteForCausalLM", LLAMA_TENSORS, computation=GRANITE),
    ),
    # Granite 4 without state-space layers and without experts: what others call the shared expert is all there is.
    Family(
        name="granitemoehybrid",
        defaults={"layer_types": _stated_layers},
        spellings={"intermediate_size": ("shared_intermediate_size",)},
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        windows=Windows("listed"),
        must_equal={"num_local_experts": 0, "position_embedding_type": "rope"},
        announced=("mamba_",),
        running=Running(
            "GraniteMoeHybridForCausalLM", GRANITE_EXPERT_TENSORS | SHARED_ALONE, FUSED_ALONE, computation=GRANITE
        ),
    ),
    Family(
        name="cohere",
        # The base is 10,000 in transformers 4 by default, 500,000 in transformers 5.
        norms_per_layer=1,
        qk_norm="optional_all",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        running=Running(
            "CohereForCausalLM",
            LLAMA_TENSORS,
            computation=_COHERE | {"qk_norm_scales": True},
            rotary=Rotary(interleaved=True),
        ),
    ),
    Family(
        name="cohere2",
        norms_per_layer=1,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        windows=Windows("all_but_every_nth"),
        free_head_dim=False,
        running=Running(
            "Cohere2ForCausalLM",
            LLAMA_TENSORS,
            computation=_COHERE,
            rotary=Rotary(interleaved=True, windowed="always"),
            # transformers reads over all of them; releases state them.
            must_equal={
                **{"use_parallel_block": True, "use_gated_activation": True, "use_parallel_embedding": False},
                **{"use_embedding_sharing": Setting("tie_word_embeddings"), "use_qk_norm": False, "rotary_pct": 1.0},
                **{"position_embedding_type": "rope_gptj", "order_of_interleaved_layers": "local_attn_first"},
                "layer_switch": Setting("sliding_window_pattern"),
            },
        ),
    ),
    dataclasses.replace(
        LLAMA_LIKE,
        name="smollm3",
        must_equal={"use_sliding_window": False},
        running=Running(
            "SmolLM3ForCausalLM",
            LLAMA_TENSORS,
            rotary=Rotary(skipped=("no_rope_layers", "no_rope_layer_interval")),
        ),
    ),
    Family(
        name="hunyuan_v1_dense",
        spellings={"head_dim": ("attention_head_dim", "head_dim")},
        qk_norm="head",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        must_equal={"use_cla": False, "use_mla": False, "use_qk_norm": True, "mlp_bias": False},
        announced=("cla_share_factor",),  # counts where `use_cla` is true
        running=Running(
            "HunYuanDenseV1ForCausalLM",
            HUNYUAN_TENSORS,
            must_equal={"use_rotary_pos_emb": True},
            **HUNYUAN,
        ),
    ),
    Family(
        name="seed_oss",
        qkv_bias="attention_bias",
        o_bias="attention_out_bias",
        ffn_bias="mlp_bias",
        running=Running("SeedOssForCausalLM", LLAMA_TENSORS),
    ),
    Family(
        name="ernie4_5",
        qkv_bias="use_bias",
        o_bias="use_bias",
        ffn_bias="use_bias",
        running=Running("Ernie4_5ForCausalLM", LLAMA_TENSORS, rotary=Rotary(interleaved=True)),
    ),
)
