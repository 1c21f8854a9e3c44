"""Write a network as a Hugging Face directory: config.json and one safetensors file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.numpy import save

from hwmodels.catalog.huggingface import Family
from jaxspec.files import write_bytes, write_text
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.families import family_for, running
from jaxspec.models.stored_parameters import network_parameters, stored_tensors

__all__ = ["config_json", "save_directory"]


def config_json(config: DecoderConfig, *, max_positions: int, family: Family | None = None) -> dict[str, Any]:
    """The config.json of `config`; see `save_directory`."""
    family = family_for(config) if family is None else family
    raw = {
        "architectures": [running(family).architecture],
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
        **running(family).must_equal,
    }
    if config.rope_scaling is not None:
        raw["rope_scaling"] = {"rope_type": "llama3", **vars(config.rope_scaling)}
    return raw


def save_directory(
    params: Params, config: DecoderConfig, out: Path, *, max_positions: int, family: Family | None = None
) -> None:
    """Write `out`/config.json and `out`/model.safetensors in bfloat16; each file appears whole or not at all.

    Args:
        max_positions: longest text that the network is meant for.
        family: row of the table to write it as, one that computes `config`; None: the first that does.
    Raises:
        NotImplementedError: no family computes this configuration.
    """
    family = family_for(config) if family is None else family
    tensors = stored_tensors(params, network_parameters(config, running(family).tensors))
    write_bytes(out / "model.safetensors", save(tensors, metadata={"format": "pt"}))
    written = config_json(config, max_positions=max_positions, family=family)
    write_text(out / "config.json", json.dumps(written, indent=2, sort_keys=True) + "\n")
