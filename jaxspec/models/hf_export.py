"""Write a network as a Hugging Face directory: config.json and one safetensors file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save

from jaxspec.files import write_bytes, write_text
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.families import FAMILIES, HEAD_PATH, HEAD_TENSOR, Family


def lookup(tree: dict[str, Any], path: tuple[str, ...]) -> Any:
    """Leaf of a nested dictionary."""
    for key in path:
        tree = tree[key]
    return tree


def family_for(config: DecoderConfig) -> Family:
    """The family that computes this configuration."""
    return next(family for family in FAMILIES.values() if family.qk_norm == config.qk_norm)


def config_json(config: DecoderConfig, *, max_positions: int) -> dict[str, Any]:
    """The config.json of `config`."""
    family = family_for(config)
    raw = {
        "architectures": [family.architecture],
        "model_type": family.name,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "rope_theta": config.rope_theta,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tie_embeddings,
        "max_position_embeddings": max_positions,
        "torch_dtype": "bfloat16",
        **family.must_equal,
    }
    if config.rope_scaling is not None:
        raw["rope_scaling"] = {"rope_type": "llama3", **vars(config.rope_scaling)}
    return raw


def checkpoint_tensors(params: Params, config: DecoderConfig, dtype: Any = jnp.bfloat16) -> dict[str, np.ndarray]:
    """Tensor name -> array, one per layer as checkpoints store them."""
    tensors = {}
    for path, name in family_for(config).tensors.items():
        value = np.asarray(jnp.asarray(lookup(params, path), dtype))
        if path[0] == "layers":
            tensors |= {name.format(layer=i): np.ascontiguousarray(value[i]) for i in range(config.num_layers)}
        else:
            tensors[name] = value
    if not config.tie_embeddings:
        tensors[HEAD_TENSOR] = np.asarray(jnp.asarray(lookup(params, HEAD_PATH), dtype))
    return tensors


def save_directory(params: Params, config: DecoderConfig, out: Path, *, max_positions: int) -> None:
    """Write `out`/config.json and `out`/model.safetensors in bfloat16; each file appears whole or not at all."""
    write_bytes(out / "model.safetensors", save(checkpoint_tensors(params, config), metadata={"format": "pt"}))
    written = config_json(config, max_positions=max_positions)
    write_text(out / "config.json", json.dumps(written, indent=2, sort_keys=True) + "\n")
