"""Dense families with RMS norms and gated feed-forward networks."""

from __future__ import annotations

import dataclasses
from typing import Any

from hwmodels.catalog.huggingface.family import LLAMA_LIKE, WINDOWED, Family, Running, Windows, sizes
from hwmodels.catalog.huggingface.tensor_names import LLAMA_TENSORS

__all__ = ["GATED"]

#: What decides values and not sizes, as these families have it where a file lacks it.
_ROTARY: dict[str, Any] = {"rms_norm_eps": 1e-6, "rope_theta": 10_000.0}


def _as_llama(architecture: str, *, ambiguous_windows: tuple[str, ...] = (), **must_equal: Any) -> Running:
    """What runs as Llama does, but for the options of its blocks that the row states."""
    return Running(architecture, LLAMA_TENSORS, {"hidden_act": "silu"} | must_equal, ambiguous_windows)


#: One row per family.
GATED: tuple[Family, ...] = (
    dataclasses.replace(
        LLAMA_LIKE,
        name="llama",
        defaults=sizes(32, 4096, 11008, 32, None, 32000, **_ROTARY, max_position_embeddings=2048),
        running=_as_llama(
            "LlamaForCausalLM",
            attention_bias=False,
            mlp_bias=False,
            ambiguous_windows=("sliding_window", "attention_chunk_size"),
        ),
    ),
    Family(
        name="mistral",
        defaults=sizes(32, 4096, 14336, 32, 8, 32000, sliding_window=4096)
        | _ROTARY
        | {"max_position_embeddings": 131_072},
        windows=Windows("all"),
        running=_as_llama("MistralForCausalLM", sliding_window=None),
    ),
    Family(
        name="qwen2",
        defaults=sizes(32, 4096, 22016, 32, 32, 151936, **WINDOWED, **_ROTARY, max_position_embeddings=32_768),
        qkv_bias=True,
        windows=Windows("from_layer", enabled="use_sliding_window"),
        running=_as_llama("Qwen2ForCausalLM", use_sliding_window=False),
    ),
    Family(
        name="qwen3",
        defaults=sizes(32, 4096, 22016, 32, 32, 151936, head_dim=128, **WINDOWED, **_ROTARY)
        | {"max_position_embeddings": 32_768},
        qk_norm="head",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        windows=Windows("from_layer", enabled="use_sliding_window"),
        running=_as_llama("Qwen3ForCausalLM", attention_bias=False, use_sliding_window=False),
    ),
    Family(
        name="glm",
        defaults=sizes(40, 4096, 13696, 32, 2, 151552, head_dim=128, attention_bias=True),
        qkv_bias="attention_bias",
    ),
    Family(
        name="glm4",
        defaults=sizes(40, 4096, 13696, 32, 2, 151552, head_dim=128, attention_bias=True),
        norms_per_layer=4,
        qkv_bias="attention_bias",
    ),
    Family(
        name="gemma",
        defaults=sizes(28, 3072, 24576, 16, 16, 256000, tied=True, head_dim=256),
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        must_equal={"use_bidirectional_attention": False},
    ),
    Family(
        name="gemma2",
        defaults=sizes(26, 2304, 9216, 8, 4, 256000, tied=True, head_dim=256)
        | {"sliding_window": 4096, "sliding_window_pattern": 2},
        norms_per_layer=4,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        windows=Windows("all_but_every_nth"),
        must_equal={"use_bidirectional_attention": False},
    ),
    Family(
        name="gemma3_text",
        defaults=sizes(26, 2304, 9216, 8, 4, 262208, tied=True, head_dim=256)
        | {"sliding_window": 4096, "sliding_window_pattern": 6},
        norms_per_layer=4,
        qk_norm="head",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        windows=Windows("all_but_every_nth"),
        must_equal={"use_bidirectional_attention": False},
    ),
    Family(name="phi3", defaults=sizes(32, 3072, 8192, 32, None, 32064), windows=Windows("all")),
    Family(
        name="olmo2",
        defaults=sizes(32, 4096, 11008, 32, None, 50304),
        qk_norm="all",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
    ),
    Family(
        name="olmo3",
        defaults=sizes(32, 4096, 11008, 32, None, 50304, sliding_window=4096, sliding_window_pattern=4),
        qk_norm="all",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        windows=Windows("all_but_every_nth"),
    ),
    dataclasses.replace(LLAMA_LIKE, name="granite", defaults=sizes(32, 4096, 11008, 32, None, 32000)),
    Family(
        name="cohere",
        defaults=sizes(40, 8192, 22528, 64, None, 256000, tied=True),
        norms_per_layer=1,
        qk_norm="optional_all",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
    ),
    Family(
        name="cohere2",
        defaults=sizes(40, 8192, 22528, 64, None, 256000, tied=True, sliding_window=4096, sliding_window_pattern=4),
        norms_per_layer=1,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        windows=Windows("all_but_every_nth"),
        free_head_dim=False,
    ),
    dataclasses.replace(
        LLAMA_LIKE,
        name="smollm3",
        defaults=sizes(36, 2048, 11008, 16, 4, 128256, tied=True),
        must_equal={"use_sliding_window": False},
    ),
    Family(
        name="seed_oss",
        defaults=sizes(64, 4096, 27648, 80, 8, 155136, head_dim=128, attention_bias=True),
        qkv_bias="attention_bias",
        o_bias="attention_out_bias",
        ffn_bias="mlp_bias",
    ),
    Family(
        name="ernie4_5",
        defaults=sizes(18, 1024, 3072, 16, 2, 103424, tied=True, head_dim=128),
        qkv_bias="use_bias",
        o_bias="use_bias",
        ffn_bias="use_bias",
    ),
)
