"""Write a network as a Hugging Face directory: config.json and one safetensors file."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from safetensors.numpy import save

from hwmodels.networks import Family, runnable_families, running_row, written_config
from jaxspec.models.architecture import spec_of
from jaxspec.models.config import DecoderConfig, decoder_config
from jaxspec.models.decoder import Params
from jaxspec.models.stored_parameters import network_parameters, stored_tensors
from jaxspec.partial_files import write_bytes, write_text

__all__ = ["config_json", "family_for", "save_directory"]

#: Any number of positions, where only the rest of config.json is asked for.
_SOME_POSITIONS = 2048


def family_for(config: DecoderConfig) -> Family:
    """The first family of the table whose networks compute this configuration: one that reads it from its own config.json.

    Raises:
        NotImplementedError: none does.
    """
    for family in runnable_families().values():
        # A dense network is no mixture without mixed layers, though such families could say so.
        if (family.experts is None) == (config.experts is None) and _computes(family, config):
            return family
    raise NotImplementedError(f"no known family has layers with {', '.join(config.layer_parameters)}")


def _computes(family: Family, config: DecoderConfig) -> bool:
    try:
        # What the network is stored in, weights files say.
        plain = dataclasses.replace(config, stored_dtype="bfloat16")
        return decoder_config(written_config(spec_of(config), family, max_positions=_SOME_POSITIONS)) == plain
    except (NotImplementedError, ValueError):
        return False


def config_json(config: DecoderConfig, *, max_positions: int, family: Family | None = None) -> dict[str, Any]:
    """The config.json of `config`; see `save_directory`."""
    if family is None:
        family = family_for(config)
    elif not _computes(family, config):
        raise NotImplementedError(f"networks of the family {family.name} do not compute this configuration: {config}")
    return written_config(spec_of(config), family, max_positions=max_positions)


def save_directory(
    params: Params,
    config: DecoderConfig,
    out: str | os.PathLike[str],
    *,
    max_positions: int,
    family: Family | None = None,
) -> None:
    """Write `out`/config.json and `out`/model.safetensors in bfloat16; each file appears whole or not at all.

    Args:
        max_positions: longest text that the network is meant for.
        family: row of the table to write it as, one that computes `config`; None: the first that does.
    Raises:
        NotImplementedError: no family computes this configuration.
        ValueError: a tied network with a head of its own.
    """
    if config.tie_embeddings and "lm_head" in params:
        raise ValueError("params have an lm_head, which a tied network has not; give config with tie_embeddings=False")
    out, family = Path(out), family_for(config) if family is None else family
    tensors = stored_tensors(params, network_parameters(config, running_row(family)))
    write_bytes(out / "model.safetensors", save(tensors, metadata={"format": "pt"}))
    written = config_json(config, max_positions=max_positions, family=family)
    write_text(out / "config.json", json.dumps(written, indent=2, sort_keys=True) + "\n")
