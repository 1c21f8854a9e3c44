"""From a GGUF file's metadata to the config.json of the same network.

A row of the table says what a file's architecture is called in config.json and what its conversion does to tensors; names of
tensors are those of the library `gguf`. A family is in the table once a test converts one of its networks and reads it back.

Source: llama.cpp, the converters from Hugging Face checkpoints, and the constants that its loader adds (`src/llama-model.cpp`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from hwmodels.networks import FAMILIES
from hwmodels.networks.settings import Settings
from jaxspec.models.config import DecoderConfig

__all__ = ["ARCHITECTURES", "Converted", "config_of", "converted_as", "metadata_of", "row_of"]

#: What a row computes from sizes: of the config.json so far.
_Rule = Callable[[Mapping[str, Any]], Any]


class Converted(NamedTuple):
    """How networks of one architecture are converted.

    Attributes:
        model_type: of config.json.
        settings: further keys of config.json -> key of the metadata behind the architecture's name.
        fixed: keys of config.json that the metadata do not have, with their values, or how they follow from others.
        permuted: rows of each head's queries and keys are in the order of interleaved rotation.
        shifted: scales of norms are stored plus 1.
        partial: `rope.dimension_count` says how much of each head is rotated; in other families it is all.
    """

    model_type: str
    settings: Mapping[str, str] = {}
    fixed: Mapping[str, Any | _Rule] = {}
    permuted: bool = False
    shifted: bool = False
    partial: bool = False


#: Key of config.json -> key of the metadata behind the architecture's name, in all families.
_COMMON = {
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
    "max_position_embeddings": "context_length",
}

_EXPERTS = {"num_experts": "expert_count", "num_experts_per_tok": "expert_used_count"}


def _query_scalar(largest: int) -> _Rule:
    """Gemma's `query_pre_attn_scalar`: in the network of most layers another one than the width of a head."""

    def rule(found: Mapping[str, Any]) -> int:
        wide = found["num_hidden_layers"] == largest
        return found["hidden_size"] // found["num_attention_heads"] if wide else found["head_dim"]

    return rule


_GEMMA = {"final_logit_softcapping": "final_logit_softcapping", "sliding_window": "attention.sliding_window"}

#: `general.architecture` -> how it was converted.
ARCHITECTURES = {
    "llama": Converted("llama", permuted=True),
    "qwen2": Converted("qwen2"),
    "qwen3": Converted("qwen3"),
    "qwen3moe": Converted(
        "qwen3_moe",
        _EXPERTS | {"moe_intermediate_size": "expert_feed_forward_length"},
        {"norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []},
    ),
    "gemma2": Converted(
        "gemma2",
        _GEMMA | {"attn_logit_softcapping": "attn_logit_softcapping"},
        {"query_pre_attn_scalar": _query_scalar(46)},
        shifted=True,
    ),
    "gemma3": Converted(
        "gemma3_text",
        _GEMMA | {"rope_local_base_freq": "rope.freq_base_swa"},
        {"query_pre_attn_scalar": _query_scalar(62)},
        shifted=True,
    ),
    "phi3": Converted(
        "phi3",
        {
            "sliding_window": "attention.sliding_window",
            "original_max_position_embeddings": "rope.scaling.original_context_length",
        },
        partial=True,
    ),
    "olmo2": Converted("olmo2"),
    "granite": Converted(
        "granite",
        {
            "attention_multiplier": "attention.scale",
            "embedding_multiplier": "embedding_scale",
            "residual_multiplier": "residual_scale",
            "logits_scaling": "logit_scale",
        },
        permuted=True,
    ),
    "smollm3": Converted("smollm3", permuted=True),
    "seed_oss": Converted("seed_oss"),
}

#: Files of Mixtral are of the architecture "llama" too.
_MIXTRAL = Converted(
    "mixtral", {"num_local_experts": "expert_count", "num_experts_per_tok": "expert_used_count"}, permuted=True
)

#: Keys of config.json -> tensors whose biases they are about.
_BIASES = {"attention_bias": "attn_q", "attention_out_bias": "attn_output", "mlp_bias": "ffn_up"}

#: Keys that say nothing new, or are compared with what other keys say.
_READ_OVER = {"vocab_size", "rope.dimension_count", "attention.value_length", "rope.scaling.finetuned"}

#: Rope scaling: keys of config.json -> of the metadata behind `rope.scaling.`, by its type.
_SCALING = {
    "linear": {"factor": "factor"},
    "yarn": {
        "factor": "factor",
        "original_max_position_embeddings": "original_context_length",
        "attention_factor": "yarn_attn_factor",
        "beta_fast": "yarn_beta_fast",
        "beta_slow": "yarn_beta_slow",
    },
}

#: Tensors that belong to the settings.
FREQUENCIES, LONG, SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"


def row_of(metadata: Mapping[str, Any]) -> Converted:
    """The row of a file.

    Raises:
        NotImplementedError: of an architecture that is not in the table.
    """
    name = metadata.get("general.architecture")
    if name not in ARCHITECTURES:
        raise NotImplementedError(
            f"general.architecture {name!r} is not read from GGUF files; those that are: {', '.join(ARCHITECTURES)}"
        )
    return _MIXTRAL if name == "llama" and metadata.get("llama.expert_count") else ARCHITECTURES[name]


def config_of(
    metadata: Mapping[str, Any], tensors: Collection[str], vocab_size: int, settings: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """The config.json of a network.

    Args:
        tensors: their names in the file.
        vocab_size: rows of the embedding.
        settings: tensors of the file that are settings, by name.
    Raises:
        NotImplementedError: an architecture, or a key of the metadata, that is not read here.
        ValueError: values that do not fit together.
    """
    row, name = row_of(metadata), metadata["general.architecture"]
    own = {
        key.removeprefix(f"{name}."): _plain(key, value)
        for key, value in metadata.items()
        if key.startswith(f"{name}.")
    }
    for key in ("block_count", "embedding_length", "attention.head_count"):
        Settings(own, {}, {}, "").size(key)
    if own["block_count"] > len(tensors):
        raise ValueError(f"block_count is {own['block_count']}, and the file has {len(tensors)} tensors")
    known = {**_COMMON, **row.settings}
    found: dict[str, Any] = {
        "model_type": row.model_type,
        "vocab_size": vocab_size,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": "output.weight" not in tensors,
        **{key: f"blk.0.{name}.bias" in tensors for key, name in _BIASES.items()},
        "rope_theta": 10_000.0,
    }
    found |= {key: own[stored] for key, stored in known.items() if stored in own}
    if found.get("sliding_window") == 0:
        found["sliding_window"] = None
    found |= _rope(own, settings, row)
    read = {*known.values(), *_READ_OVER, "rope.scaling.type", "rope.scaling.attn_factor"}
    read |= {f"rope.scaling.{key}" for key in _SCALING.get(str(own.get("rope.scaling.type")), {}).values()}
    # What a switched-off feature has as its size is no feature.
    unread = sorted(key for key, value in own.items() if key not in read and value)
    if unread:
        raise NotImplementedError(f"{name}.{unread[0]} = {own[unread[0]]!r} is not read from GGUF files")
    _check_widths(own, found, row, name)
    for key, value in row.fixed.items():
        found[key] = value(found) if callable(value) else value
    for key in ("bos", "eos", "padding"):
        if (token := metadata.get(f"tokenizer.ggml.{key}_token_id")) is not None:
            found[f"{key.removesuffix('ding')}_token_id"] = int(token)
    return found


def _plain(key: str, value: Any) -> Any:
    """A value as JSON has it: float32 by its shortest digits, and one number where all layers have it."""
    if isinstance(value, list):
        if any(entry != value[0] for entry in value):
            raise NotImplementedError(f"{key} differs from layer to layer, which is not read from GGUF files")
        value = value[0] if value else None
    return _shortest(value) if isinstance(value, float) else value


def _shortest(value: Any) -> float:
    """The number of fewest digits that float32 rounds to this: what the checkpoint said."""
    return float(np.format_float_positional(np.float32(value), unique=True))


def _check_widths(own: Mapping[str, Any], found: dict[str, Any], row: Converted, name: str) -> None:
    """Keys that repeat the width of a head agree with it, or say how much of it is rotated."""
    width = found.setdefault("head_dim", found["hidden_size"] // found["num_attention_heads"])
    rotated = own.get("rope.dimension_count", width)
    if row.partial and width and rotated != width:
        share = rotated / width
        found["partial_rotary_factor"] = share if int(width * share) == rotated else math.nextafter(share, 2.0)
        rotated = width
    for key, value in (
        ("rope.dimension_count", rotated),
        ("attention.value_length", own.get("attention.value_length")),
    ):
        if value not in (None, width):
            raise NotImplementedError(f"{name}.{key} = {value!r} beside heads of {width} is not read from GGUF files")


def _rope(own: Mapping[str, Any], settings: Mapping[str, np.ndarray], row: Converted) -> dict[str, Any]:
    """Rope scaling as config.json states it."""
    kind = own.get("rope.scaling.type", "none")
    if FREQUENCIES in settings:
        return {"rope_scaling": _divisors(settings[FREQUENCIES].astype(np.float32), own, row)}
    if SHORT in settings and LONG in settings:
        factors = {"short_factor": SHORT, "long_factor": LONG}
        scaling = {key: [_shortest(value) for value in settings[tensor]] for key, tensor in factors.items()}
        if "rope.scaling.attn_factor" in own:
            scaling["attention_factor"] = own["rope.scaling.attn_factor"]
        return {"rope_scaling": {"type": "longrope", **scaling}}
    if kind == "none":
        return {}
    if kind not in _SCALING:
        raise NotImplementedError(
            f"rope.scaling.type {kind!r} is not read from GGUF files; known: {', '.join(_SCALING)}"
        )
    keys = _SCALING[kind].items()
    return {
        "rope_scaling": {"rope_type": kind}
        | {key: own[f"rope.scaling.{stored}"] for key, stored in keys if f"rope.scaling.{stored}" in own}
    }


def _divisors(factors: np.ndarray, own: Mapping[str, Any], row: Converted) -> dict[str, Any]:
    """Divisors of all frequencies: those of Llama 3.1 and 3.2 under their own name, others as they are."""
    from jaxspec.models.rope import Llama3Scaling, plain_frequencies

    base, width = own.get("rope.freq_base", 10_000.0), 2 * len(factors)
    known = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    factor = float(factors.max())
    released = Llama3Scaling(factor=factor, **known).frequencies(base, width, jnp.zeros(0, jnp.int32))
    if np.allclose(plain_frequencies(base, width) / factors, released, rtol=1e-5, atol=0):
        return {"rope_type": "llama3", "factor": factor, **known}
    divisors = [_shortest(value) for value in factors]
    return {
        "rope_type": "longrope",
        "short_factor": divisors,
        "long_factor": divisors,
        "attention_factor": 1.0,
        "original_max_position_embeddings": own["context_length"],
        "factor": 1.0,
    }


#: Ends the keys of whole numbers.
_WHOLE = ("_count", "_length", "head_count_kv", "sliding_window", "vocab_size")


def converted_as() -> tuple[tuple[str, Converted], ...]:
    """All rows with the architectures that files of them have."""
    return (*ARCHITECTURES.items(), ("llama", _MIXTRAL))


def metadata_of(
    architecture: str, row: Converted, config: DecoderConfig, written: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Metadata of a network, and the tensors of its file that are settings: what `config_of` reads.

    Args:
        written: its config.json, as a network of the row's family.
    Raises:
        NotImplementedError: rope scaling that GGUF files do not have.
    """
    local = {} if config.local_rope is None else {"rope_local_base_freq": config.local_rope.theta}
    values = {**written, **local, "rope_theta": config.rope_theta, "head_dim": config.head_dim}
    for key, spellings in FAMILIES[row.model_type].spellings.items():
        values |= {name: values[spelling] for spelling in spellings if spelling in values for name in (key, *spellings)}
    own = {stored: values[key] for key, stored in {**_COMMON, **row.settings}.items() if values.get(key) is not None}
    own |= {
        "vocab_size": config.vocab_size,
        "rope.dimension_count": config.rotated_elements,
        "attention.value_length": config.head_dim,
    }
    scaling, settings = config.rope_scaling, dict[str, np.ndarray]()
    kind = type(scaling).__name__.removesuffix("Scaling").lower()
    if kind in _SCALING:
        stated = {key: value for key, value in vars(scaling).items() if key in _SCALING[kind]}
        own |= {"rope.scaling.type": kind} | {
            f"rope.scaling.{_SCALING[kind][key]}": value for key, value in stated.items()
        }
    elif kind == "longrope":
        factors = {LONG: "long_factor", SHORT: "short_factor"}
        settings = {name: np.asarray(vars(scaling)[key], np.float32) for name, key in factors.items()}
        own |= {"rope.scaling.attn_factor": vars(scaling)["attention_factor"]}
        own |= {"rope.scaling.original_context_length": vars(scaling)["original_max_position_embeddings"]}
    elif kind == "llama3" and scaling is not None:
        from jaxspec.models.rope import plain_frequencies

        plain = plain_frequencies(config.rope_theta, config.rotated_elements)
        scaled = scaling.frequencies(config.rope_theta, config.rotated_elements, jnp.zeros(0, jnp.int32))
        settings = {FREQUENCIES: plain / np.asarray(scaled, np.float32).reshape(-1)}
    elif scaling is not None:
        raise NotImplementedError(f"rope scaling {kind!r} is not in GGUF files")
    typed = lambda key, value: value if isinstance(value, str) else (int if key.endswith(_WHOLE) else float)(value)
    return {f"{architecture}.{key}": typed(key, value) for key, value in own.items()}, settings
