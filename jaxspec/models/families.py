"""What tells one Hugging Face model family from another, as a table: a new family is a new entry, never a branch.

Tensor names are those of the checkpoints; `{layer}` is the layer's number. Paths into our parameters are tuples of keys.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxspec.models.config import DecoderConfig, RopeScaling

_LAYER = "model.layers.{layer}."

#: Parameter path -> tensor name, common to every family of this decoder.
_SHARED_TENSORS = {
    ("embed",): "model.embed_tokens.weight",
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
        defaults: config.json keys that the family's own configuration class leaves out when they have this value.
        must_equal: config.json keys that select computations this decoder does not have, with the only value it does.
    """

    name: str
    architecture: str
    tensors: dict[tuple[str, ...], str]
    qk_norm: bool
    defaults: dict[str, Any]
    must_equal: dict[str, Any]


FAMILIES = {
    family.name: family
    for family in (
        Family(
            name="llama",
            architecture="LlamaForCausalLM",
            tensors=_SHARED_TENSORS,
            qk_norm=False,
            defaults={"tie_word_embeddings": False, "rms_norm_eps": 1e-6, "rope_theta": 10_000.0},
            must_equal={"hidden_act": "silu", "attention_bias": False, "mlp_bias": False},
        ),
        Family(
            name="qwen3",
            architecture="Qwen3ForCausalLM",
            tensors=_SHARED_TENSORS | _QK_NORM_TENSORS,
            qk_norm=True,
            defaults={"tie_word_embeddings": False, "rms_norm_eps": 1e-6, "rope_theta": 10_000.0, "head_dim": 128},
            must_equal={"hidden_act": "silu", "attention_bias": False, "use_sliding_window": False},
        ),
    )
}

_ROPE_SCALING_KEYS = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


def _rope_scaling(raw: dict[str, Any]) -> RopeScaling | None:
    kind = raw.get("rope_type", raw.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise NotImplementedError(f"rope scaling {kind!r} is not modelled; known: default, llama3")
    return RopeScaling(**{key: raw[key] for key in _ROPE_SCALING_KEYS})


def family_of(raw: dict[str, Any]) -> Family:
    """The family of a parsed config.json.

    Raises:
        NotImplementedError: a family, or a variant of one, that this decoder does not compute.
    """
    name = raw.get("model_type")
    if name not in FAMILIES:
        raise NotImplementedError(f"model_type {name!r} is not modelled; known: {', '.join(sorted(FAMILIES))}")
    family = FAMILIES[name]
    for key, value in family.must_equal.items():
        if raw.get(key, value) != value:
            raise NotImplementedError(f"{name} with {key} = {raw[key]!r} is not modelled; allowed is {value!r}")
    return family


def decoder_config(raw: dict[str, Any]) -> DecoderConfig:
    """Our static configuration from a parsed config.json.

    Both spellings of the rotary settings are read: `rope_theta` with `rope_scaling`, and the later `rope_parameters`.

    Raises:
        NotImplementedError: see `family_of`.
        KeyError: a required key is missing.
        ValueError: sizes that do not fit together.
    """
    family = family_of(raw)
    full = family.defaults | {key: value for key, value in raw.items() if value is not None}
    rope = full.get("rope_parameters") or full.get("rope_scaling") or {}
    heads = full["num_attention_heads"]
    return DecoderConfig(
        vocab_size=full["vocab_size"],
        hidden_size=full["hidden_size"],
        intermediate_size=full["intermediate_size"],
        num_layers=full["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=full.get("num_key_value_heads", heads),
        head_dim=full.get("head_dim", full["hidden_size"] // heads),
        rope_theta=float(rope.get("rope_theta", full["rope_theta"])),
        rope_scaling=_rope_scaling(rope),
        norm_eps=full["rms_norm_eps"],
        qk_norm=family.qk_norm,
        tie_embeddings=full["tie_word_embeddings"],
    )
