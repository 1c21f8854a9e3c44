"""What tells one Hugging Face model family from another, as a table: a new family is a new entry, never a branch.

Tensor names are those of the checkpoints; `{layer}` is the layer's number. Paths into our parameters are tuples of
keys.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from jaxspec.models.config import DecoderConfig, RopeScaling

_LAYER = "model.layers.{layer}."

EMBED_PATH = ("embed",)

#: Parameter path -> tensor name, common to every family of this decoder.
_SHARED_TENSORS = {
    EMBED_PATH: "model.embed_tokens.weight",
    ("final_norm",): "model.norm.weight",
    ("layers", "attention_norm"): _LAYER + "input_layernorm.weight",
    ("layers", "mlp_norm"): _LAYER + "post_attention_layernorm.weight",
    ("layers", "q"): _LAYER + "self_attn.q_proj.weight",
    ("layers", "k"): _LAYER + "self_attn.k_proj.weight",
    ("layers", "v"): _LAYER + "self_attn.v_proj.weight",
    ("layers", "o"): _LAYER + "self_attn.o_proj.weight",
    ("layers", "gate"): _LAYER + "mlp.gate_proj.weight",
    ("layers", "up"): _LAYER + "mlp.up_proj.weight",
    ("layers", "down"): _LAYER + "mlp.down_proj.weight",
}

_QK_NORM_TENSORS = {
    ("layers", "q_norm"): _LAYER + "self_attn.q_norm.weight",
    ("layers", "k_norm"): _LAYER + "self_attn.k_norm.weight",
}

#: Present only where the head is not tied to the embedding.
HEAD_PATH, HEAD_TENSOR = ("lm_head",), "lm_head.weight"


@dataclasses.dataclass(frozen=True)
class Family:
    """One model family.

    Attributes:
        name: `model_type` of config.json.
        architecture: entry of `architectures` in config.json.
        tensors: parameter path -> tensor name.
        qk_norm: whether queries and keys are normalised per head.
        defaults: what the family's own configuration class (transformers 5) takes for a key that config.json lacks.
            Sizes that every release states are not listed: a file without them is taken for damaged.
        must_equal: config.json keys that select computations this decoder does not have, with the only value it does.
        windows: config.json keys that cut the KV cache of transformers to a window although the family's attention knows none:
            its cached decoding then differs from its own forward pass. See `_check_windows`.
    """

    name: str
    architecture: str
    tensors: dict[tuple[str, ...], str]
    qk_norm: bool
    defaults: dict[str, Any]
    must_equal: dict[str, Any]
    windows: tuple[str, ...] = ()


FAMILIES = {
    family.name: family
    for family in (
        Family(
            name="llama",
            architecture="LlamaForCausalLM",
            tensors=_SHARED_TENSORS,
            qk_norm=False,
            defaults={
                "tie_word_embeddings": False,
                "rms_norm_eps": 1e-6,
                "rope_theta": 10_000.0,
                "max_position_embeddings": 2048,
            },
            must_equal={"hidden_act": "silu", "attention_bias": False, "mlp_bias": False},
            windows=("sliding_window", "attention_chunk_size"),
        ),
        Family(
            name="qwen3",
            architecture="Qwen3ForCausalLM",
            tensors=_SHARED_TENSORS | _QK_NORM_TENSORS,
            qk_norm=True,
            defaults={
                "tie_word_embeddings": False,
                "rms_norm_eps": 1e-6,
                "rope_theta": 10_000.0,
                "max_position_embeddings": 32_768,
                "num_key_value_heads": 32,
                "head_dim": 128,
            },
            must_equal={"hidden_act": "silu", "attention_bias": False, "use_sliding_window": False},
        ),
    )
}

#: Keys that change the computation of any family unless absent, null or of this value; never written by us.
_NEUTRAL_VALUES = {"quantization_config": None, "partial_rotary_factor": 1.0}


def family_of(raw: dict[str, Any]) -> Family:
    """The family of a parsed config.json.

    Raises:
        NotImplementedError: a family, or a variant of one, that this decoder does not compute.
    """
    name = raw.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        raise NotImplementedError(f"model_type {name!r} is not modelled; known: {', '.join(sorted(FAMILIES))}")
    family = FAMILIES[name]
    for key, value in family.must_equal.items():
        if raw.get(key, value) != value:
            raise NotImplementedError(f"{name} with {key} = {raw[key]!r} is not modelled; allowed is {value!r}")
    for key, value in _NEUTRAL_VALUES.items():
        if raw.get(key) not in (None, value):
            raise NotImplementedError(f"{name} with {key} is not modelled; allowed is none")
    kinds = raw.get("layer_types") or []
    if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        raise NotImplementedError(f"{name} with layer_types {kinds!r} is not modelled; allowed is 'full_attention'")
    _check_windows(family, raw)
    return family


def _check_windows(family: Family, raw: dict[str, Any]) -> None:
    """No key may cut the text that a token sees, since which tools heed it differs.

    The Llama family attends to the whole text, and transformers' forward pass does. Its KV cache, however, goes by the keys of
    config.json: without `layer_types` a `sliding_window` (or `attention_chunk_size`) makes it drop older tokens, so that
    cached decoding says something else. Families whose configuration class derives `layer_types` (Qwen3) have no such keys.
    A window that no position reaches cuts nothing.

    Raises:
        NotImplementedError: a window that cuts.
    Source: transformers 5, cache_utils.py, get_layer_types_and_kwargs.
    """
    if raw.get("layer_types") is not None:
        return
    positions = raw.get("max_position_embeddings", family.defaults["max_position_embeddings"])
    for key in family.windows:
        window = raw.get(key)
        whole = lambda value: isinstance(value, int) and not isinstance(value, bool)
        if window is None or (whole(window) and whole(positions) and window >= positions):
            continue
        raise NotImplementedError(
            f"{family.name} with {key} = {window!r} is ambiguous: transformers attends to the whole text in a forward pass "
            f"but to so many tokens when it decodes; allowed is null, or at least the {positions!r} of max_position_embeddings"
        )


def decoder_config(raw: dict[str, Any]) -> DecoderConfig:
    """Our static configuration from a parsed config.json.

    Both spellings of the rotary settings are read: `rope_theta` with `rope_scaling` (transformers 4), and
    `rope_parameters` (transformers 5); where both stand, `rope_scaling` counts, as it does there.

    Raises:
        NotImplementedError: see `family_of`.
        ValueError: a required key is missing, a value is of the wrong kind, or sizes do not fit together.
    """
    family = family_of(raw)
    full = family.defaults | raw
    rope = {"rope_theta": full["rope_theta"]} | _rope_settings(raw)
    heads, hidden = _integer(full, "num_attention_heads"), _integer(full, "hidden_size")
    # For these two, null is a value of its own: "derive it".
    derived = {"num_key_value_heads": heads, "head_dim": hidden // heads}
    given = {key: value for key, value in full.items() if key not in derived or value is not None}
    tie = full["tie_word_embeddings"]
    if not isinstance(tie, bool):
        raise ValueError(f"tie_word_embeddings is {tie!r}; it must be true or false")
    return DecoderConfig(
        vocab_size=_integer(full, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=_integer(full, "intermediate_size"),
        num_layers=_integer(full, "num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=_integer(derived | given, "num_key_value_heads"),
        head_dim=_integer(derived | given, "head_dim"),
        rope_theta=_positive(rope, "rope_theta"),
        rope_scaling=_rope_scaling(rope, full),
        norm_eps=_positive(full, "rms_norm_eps"),
        qk_norm=family.qk_norm,
        tie_embeddings=tie,
    )


def _rope_settings(raw: dict[str, Any]) -> dict[str, Any]:
    rope = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    if not isinstance(rope, dict):
        raise ValueError(f"the rotary settings are {rope!r}; they must be an object")
    if any(isinstance(value, dict) for value in rope.values()):
        raise NotImplementedError(f"rotary settings per layer type ({list(rope)}) are not modelled; known: one for all")
    if rope.get("partial_rotary_factor") not in (None, 1.0):
        raise NotImplementedError("partial_rotary_factor is not modelled; allowed is 1.0")
    return rope


def _rope_scaling(rope: dict[str, Any], full: dict[str, Any]) -> RopeScaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise NotImplementedError(f"rope scaling {kind!r} is not modelled; known: default, llama3")
    # The precedence of transformers 5: beside the rotary settings, within them, the longest position of all.
    original = {"original_max_position_embeddings": full["max_position_embeddings"]} | rope | full
    low, high = _positive(rope, "low_freq_factor"), _positive(rope, "high_freq_factor")
    if low >= high:
        raise ValueError(f"low_freq_factor is {low} and high_freq_factor {high}; the second must be larger")
    return RopeScaling(
        factor=_positive(rope, "factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_position_embeddings=_integer(original, "original_max_position_embeddings"),
    )


def _integer(values: dict[str, Any], key: str) -> int:
    value = values.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{key} is {value!r}; it must be an integer of at least 1")
    return value


def _positive(values: dict[str, Any], key: str) -> float:
    value = values.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
        raise ValueError(f"{key} is {value!r}; it must be a finite number above 0")
    return float(value)
