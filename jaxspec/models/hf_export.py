"""Write a network as a Hugging Face directory: config.json and one safetensors file."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from safetensors.numpy import save

from hwmodels.catalog.huggingface import Family, Setting
from jaxspec.files import write_bytes, write_text
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.expert_settings import written_experts
from jaxspec.models.families import decoder_config, runnable_families, running
from jaxspec.models.latent_settings import written_latent
from jaxspec.models.linear_settings import written_linear
from jaxspec.models.rope_settings import written_rope
from jaxspec.models.stored_parameters import network_parameters, stored_tensors

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
        return decoder_config(_written(config, _SOME_POSITIONS, family)) == plain
    except (NotImplementedError, ValueError):
        return False


def config_json(config: DecoderConfig, *, max_positions: int, family: Family | None = None) -> dict[str, Any]:
    """The config.json of `config`; see `save_directory`."""
    if family is None:
        family = family_for(config)
    elif not _computes(family, config):
        raise NotImplementedError(f"networks of the family {family.name} do not compute this configuration: {config}")
    return _written(config, max_positions, family)


def _written(config: DecoderConfig, max_positions: int, family: Family) -> dict[str, Any]:
    """What config.json says of a network; what the family cannot say is left out."""
    row = running(family)
    usual = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        **({"num_key_value_heads": config.num_kv_heads} if family.grouped_queries else {}),
        **({"head_dim": config.head_dim} if family.free_head_dim else {}),
        "tie_word_embeddings": config.tie_embeddings,
        "max_position_embeddings": max_positions,
        "torch_dtype": "bfloat16",
        **written_experts(config, family),
        **written_latent(config),
        **written_linear(config, family),
    }
    if config.learned_positions is not None:
        usual["max_position_embeddings"] = config.learned_positions.positions
    switches = ((family.qkv_bias, config.qkv_bias), (family.o_bias, config.o_bias), (family.ffn_bias, config.ffn_bias))
    if family.qk_norm.startswith("optional"):
        switches += (("use_qk_norm", config.qk_norm),)
    computed = {
        how.key: _stated(getattr(config, name), how)
        for name, how in row.computation.items()
        if isinstance(how, Setting)
    }
    fixed = {**family.must_equal, **row.must_equal}
    spelled = {family.spellings.get(key, (key,))[-1]: value for key, value in usual.items()}
    return {
        "architectures": [row.architecture],
        "model_type": family.name,
        **computed,
        **spelled,
        **({} if row.rotary is None else written_rope(config, row.rotary, family.defaults)),
        **(
            {}
            if row.rotary is None or row.rotary.skipped is None
            else {row.rotary.skipped[0]: _by_layer(config.rotated, config)}
        ),
        **_written_windows(config, family),
        **{switch: value for switch, value in switches if isinstance(switch, str)},
        **{key: spelled[value.key] if isinstance(value, Setting) else value for key, value in fixed.items()},
    }


def _stated(value: Any, how: Setting) -> Any:
    """The key's value of which the network's number is a power."""
    if how.power == 1 or value is None:
        return value
    # Whole numbers come back as such, for a tool that takes no others.
    stated = float(f"{value ** (1 / how.power):.14g}")
    return int(stated) if stated.is_integer() else stated


def _by_layer(pattern: tuple[Any, ...], config: DecoderConfig) -> list[Any]:
    return [int(pattern[layer % len(pattern)]) for layer in range(config.num_layers)]


def _written_windows(config: DecoderConfig, family: Family) -> dict[str, Any]:
    """Keys that say which layers have a window; all windows of such a network are of one length."""
    rule = family.windows
    if rule is None:
        return {}
    found = [window for window in config.windows if window is not None]
    raw: dict[str, Any] = {"sliding_window": found[0] if found else None}
    if rule.enabled is not None:
        raw[rule.enabled] = bool(found)
    if rule.pattern != "all" and (found or rule.enabled is None):
        kinds = {True: "sliding_attention", False: "full_attention"}
        slides = [window is not None for window in config.windows]
        raw["layer_types"] = [kinds[slides[layer % len(slides)]] for layer in range(config.num_layers)]
    return raw


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
    tensors = stored_tensors(params, network_parameters(config, running(family)))
    write_bytes(out / "model.safetensors", save(tensors, metadata={"format": "pt"}))
    written = config_json(config, max_positions=max_positions, family=family)
    write_text(out / "config.json", json.dumps(written, indent=2, sort_keys=True) + "\n")
