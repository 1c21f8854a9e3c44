"""Dense families with RMS norms and gated feed-forward networks."""

from __future__ import annotations

import dataclasses
from typing import Any

from hwmodels.networks.family import (
    LLAMA_LIKE,
    WINDOWED,
    Family,
    Rotary,
    Running,
    Setting,
    Windows,
    sizes,
    stated_values,
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

__all__ = ["GATED", "GRANITE", "GRANITE_VALUES", "HUNYUAN"]


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
_GEMMA_VALUES = {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256}


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
_COHERE_VALUES = {"layer_norm_eps": 1e-5, "hidden_act": "silu", "logit_scale": 0.0625, "max_position_embeddings": 8192}
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


#: What decides its values where a file states none.
GRANITE_VALUES = stated_values(1e-6, 10_000.0, 2048) | dict.fromkeys(
    ("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"), 1.0
)

#: One row per family.
GATED: tuple[Family, ...] = (
    dataclasses.replace(
        LLAMA_LIKE,
        name="llama",
        defaults=sizes(32, 4096, 11008, 32, None, 32000, **stated_values(1e-6, 10_000.0, 2048)),
        running=Running("LlamaForCausalLM", LLAMA_TENSORS),
    ),
    dataclasses.replace(
        LLAMA_LIKE,
        name="internlm3",
        defaults=sizes(48, 4096, 10240, 32, 2, 128512, head_dim=128, **stated_values(1e-5, 10_000.0, 32_768)),
        spellings={"attention_bias": ("qkv_bias",), "mlp_bias": ("bias",)},
        running=Running("InternLM3ForCausalLM", LLAMA_TENSORS),
    ),
    dataclasses.replace(
        LLAMA_LIKE,
        name="iquestcoder",
        defaults=sizes(80, 5120, 27648, 40, 8, 76800, head_dim=128, **stated_values(1e-5, 10_000.0, 131_072)),
        must_equal={"clip_qkv": None, "use_sliding_window": False},
        running=Running("IQuestCoderForCausalLM", LLAMA_TENSORS),
    ),
    dataclasses.replace(
        LLAMA_LIKE,
        name="helium",
        defaults=sizes(24, 2560, 7040, 20, 20, 48000, head_dim=128, **stated_values(1e-8, 100_000.0, 4096)),
        # Its matrix of what attention gives has none.
        o_bias=False,
        running=Running("HeliumForCausalLM", LLAMA_TENSORS, rotary=Rotary(interleaved=True)),
    ),
    dataclasses.replace(
        LLAMA_LIKE,
        name="arcee",
        defaults=sizes(32, 2560, 18432, 32, None, 32000)
        | stated_values(1e-5, 10_000.0, 4096)
        | {"hidden_act": "relu2"},
        gated_ffn=False,
        running=Running("ArceeForCausalLM", LLAMA_TENSORS),
    ),
    Family(
        name="apertus",
        defaults=sizes(32, 4096, 14336, 32, None, 131072)
        | stated_values(1e-5, 12_000_000.0, 65_536)
        | {"hidden_act": "xielu"},
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
        defaults=sizes(32, 4096, 14336, 32, 8, 32000, sliding_window=4096, **stated_values(1e-6, 10_000.0, 131_072)),
        windows=Windows("all"),
        running=Running("MistralForCausalLM", LLAMA_TENSORS),
    ),
    Family(
        name="ministral",
        defaults=sizes(32, 4096, 14336, 32, 8, 32000, sliding_window=4096, **stated_values(1e-6, 10_000.0, 131_072)),
        windows=Windows("listed"),
        running=Running("MinistralForCausalLM", LLAMA_TENSORS),
    ),
    Family(
        name="ministral3",
        defaults=sizes(34, 4096, 14336, 32, 8, 131072, head_dim=128, sliding_window=None)
        | stated_values(1e-5, 1_000_000.0, 262_144),
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
        defaults=sizes(64, 6144, 21504, 48, 8, 128256, head_dim=128, sliding_window=8192, sliding_window_pattern=4)
        | stated_values(1e-5, 1_000_000.0, 131_072),
        ffn_bias="mlp_bias",
        windows=Windows("all_behind_every_nth"),
        running=Running("CwmForCausalLM", LLAMA_TENSORS),
    ),
    Family(
        name="qwen2",
        # MiMo-7B: Qwen2 with a layer for further tokens. Positions of images have three coordinates, those of text one.
        also={"mimo": {}} | {name: {"rope_theta": 1_000_000.0} for name in ("qwen2_vl_text", "qwen2_5_vl_text")},
        defaults=sizes(32, 4096, 22016, 32, 32, 151936, **WINDOWED, **stated_values(1e-6, 10_000.0, 32_768)),
        qkv_bias=True,
        windows=Windows("from_layer", enabled="use_sliding_window"),
        running=Running("Qwen2ForCausalLM", LLAMA_TENSORS),
    ),
    Family(
        name="qwen3",
        defaults=sizes(
            32, 4096, 22016, 32, 32, 151936, head_dim=128, **WINDOWED, **stated_values(1e-6, 10_000.0, 32_768)
        ),
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
        defaults=sizes(40, 4096, 13696, 32, 2, 151552, head_dim=128, attention_bias=True)
        | stated_values(1.5625e-07, 10_000.0, 131_072, partial_rotary_factor=0.5),
        qkv_bias="attention_bias",
    ),
    Family(
        name="glm4",
        defaults=sizes(40, 4096, 13696, 32, 2, 151552, head_dim=128, attention_bias=True)
        | stated_values(1.5625e-07, 10_000.0, 131_072, partial_rotary_factor=0.5),
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
        defaults=sizes(28, 3072, 24576, 16, 16, 256000, tied=True, head_dim=256)
        | stated_values(1e-6, 10_000.0, 8192)
        | {"hidden_act": "gelu_pytorch_tanh"},
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        must_equal={"use_bidirectional_attention": False},
        running=Running("GemmaForCausalLM", LLAMA_TENSORS, computation=_GEMMA_1),
    ),
    Family(
        name="vaultgemma",
        defaults=sizes(26, 2304, 9216, 8, 4, 256000, tied=True, head_dim=256)
        | {"sliding_window": 4096, "sliding_window_pattern": 2}
        | stated_values(1e-6, 10_000.0, 8192, **_GEMMA_VALUES)
        | {"final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0},
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
        defaults=sizes(26, 2304, 9216, 8, 4, 256000, tied=True, head_dim=256)
        | {"sliding_window": 4096, "sliding_window_pattern": 2}
        | stated_values(1e-6, 10_000.0, 8192, **_GEMMA_VALUES)
        | {"final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0},
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
        defaults=sizes(26, 2304, 9216, 8, 4, 262208, tied=True, head_dim=256)
        | {"sliding_window": 4096, "sliding_window_pattern": 6}
        | stated_values(1e-6, 1_000_000.0, 131_072, **_GEMMA_VALUES, rope_local_base_freq=10_000.0)
        | {"final_logit_softcapping": None},
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
        defaults=sizes(32, 3072, 8192, 32, None, 32064)
        | stated_values(1e-5, 10_000.0, 4096, original_max_position_embeddings=4096),
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
        defaults=sizes(32, 4096, 11008, 32, None, 50304, **stated_values(1e-5, 10_000.0, 2048)),
        qk_norm="all",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        running=Running("Olmo2ForCausalLM", SANDWICH_TENSORS, computation=_NORMS_AFTER),
    ),
    Family(
        name="olmo3",
        defaults=sizes(32, 4096, 11008, 32, None, 50304, sliding_window=4096, sliding_window_pattern=4)
        | stated_values(1e-5, 500_000.0, 2048),
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
        defaults=sizes(32, 4096, 16384, 32, 32, 102400, sliding_window=4096, sliding_window_pattern=4)
        | stated_values(1e-5, 10_000.0, 2048),
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
        defaults=sizes(32, 4096, 11008, 32, None, 32000) | GRANITE_VALUES,
        running=Running("GraniteForCausalLM", LLAMA_TENSORS, computation=GRANITE),
    ),
    # Granite 4 without state-space layers and without experts: what others call the shared expert is all there is.
    Family(
        name="granitemoehybrid",
        defaults=sizes(32, 4096, 1024, 32, None, 32000, layer_types=_stated_layers, num_local_experts=8)
        | GRANITE_VALUES,
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
        defaults=sizes(40, 8192, 22528, 64, None, 256000, tied=True, rope_theta=None) | _COHERE_VALUES,
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
        defaults=sizes(40, 8192, 22528, 64, None, 256000, tied=True, sliding_window=4096, sliding_window_pattern=4)
        | {"rope_theta": 10_000.0}
        | _COHERE_VALUES,
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
        defaults=sizes(36, 2048, 11008, 16, 4, 128256, tied=True, **stated_values(1e-6, 2_000_000.0, 32_768))
        | {"no_rope_layer_interval": 4},
        must_equal={"use_sliding_window": False},
        running=Running(
            "SmolLM3ForCausalLM",
            LLAMA_TENSORS,
            rotary=Rotary(skipped=("no_rope_layers", "no_rope_layer_interval")),
        ),
    ),
    Family(
        name="hunyuan_v1_dense",
        defaults=sizes(32, 4096, 11008, 32, None, 290_943) | stated_values(1e-5, 10_000.0, 2048),
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
        defaults=sizes(64, 4096, 27648, 80, 8, 155136, head_dim=128, attention_bias=True)
        | stated_values(1e-6, 10_000.0, 524_288),
        qkv_bias="attention_bias",
        o_bias="attention_out_bias",
        ffn_bias="mlp_bias",
        running=Running("SeedOssForCausalLM", LLAMA_TENSORS),
    ),
    Family(
        name="ernie4_5",
        defaults=sizes(18, 1024, 3072, 16, 2, 103424, tied=True, head_dim=128)
        | stated_values(1e-5, 500_000.0, 131_072),
        qkv_bias="use_bias",
        o_bias="use_bias",
        ffn_bias="use_bias",
        running=Running("Ernie4_5ForCausalLM", LLAMA_TENSORS, rotary=Rotary(interleaved=True)),
    ),
)
