"""Networks that run, by the rows of the one table of Hugging Face families.

A row (`hwmodels.catalog.huggingface`) says what a family's config.json means and what its checkpoints call their tensors; here
that becomes a `DecoderConfig`. A new family with known blocks is a new row, never a branch.
"""

from __future__ import annotations

import sys
from typing import Any

from hwmodels.catalog.huggingface import FAMILIES, Family, Running
from jaxspec.models.config import DecoderConfig
from jaxspec.models.sizes import RopeScaling

__all__ = ["decoder_config", "family_for", "family_of", "runnable_families", "running"]

#: Keys that change the computation of any family unless absent, null or of this value; never written by us.
_NEUTRAL_VALUES = {"quantization_config": None, "partial_rotary_factor": 1.0}

#: Sizes that every release states: a file without them is taken for damaged, whatever the family's defaults.
_STATED = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")


def runnable_families() -> dict[str, Family]:
    """Families whose networks run here, by `model_type`."""
    return {name: family for name, family in FAMILIES.items() if family.running is not None}


def running(family: Family) -> Running:
    """What a row says about running.

    Raises:
        NotImplementedError: networks of the family are priced only.
    """
    if family.running is None:
        known = ", ".join(sorted(runnable_families()))
        raise NotImplementedError(f"model_type {family.name!r} is priced but does not run; known: {known}")
    return family.running


def family_of(raw: dict[str, Any]) -> Family:
    """The family of a parsed config.json.

    Raises:
        NotImplementedError: a family, or a variant of one, that this decoder does not compute.
    """
    name, known = raw.get("model_type"), runnable_families()
    if not isinstance(name, str) or name not in known:
        raise NotImplementedError(f"model_type {name!r} is not modelled; known: {', '.join(sorted(known))}")
    family = known[name]
    full = _with_defaults(raw, family)
    for key, value in running(family).must_equal.items():
        if full.get(key, value) != value:
            allowed = "null" if value is None else repr(value)
            raise NotImplementedError(f"{name} with {key} = {full[key]!r} is not modelled; allowed is {allowed}")
    for key, value in _NEUTRAL_VALUES.items():
        if raw.get(key) not in (None, value):
            raise NotImplementedError(f"{name} with {key} is not modelled; allowed is none")
    kinds = raw.get("layer_types") or []
    if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        raise NotImplementedError(f"{name} with layer_types {kinds!r} is not modelled; allowed is 'full_attention'")
    _check_windows(family, full)
    return family


def family_for(config: DecoderConfig) -> Family:
    """The first family of the table whose networks compute this configuration.

    Raises:
        NotImplementedError: none does.
    """
    for family in runnable_families().values():
        same_options = (config.qk_norm, config.qkv_bias) == (_normed(family), family.qkv_bias is True)
        if same_options and set(config.layer_parameters) <= set(running(family).tensors):
            return family
    raise NotImplementedError(f"no known family has layers with {', '.join(config.layer_parameters)}")


def _normed(family: Family) -> bool:
    return family.qk_norm == "head"


def _with_defaults(raw: dict[str, Any], family: Family) -> dict[str, Any]:
    """By the usual keys: what the file states, and the family's defaults of what releases may leave out."""
    usual = {key: raw[spelling] for key, known in family.spellings.items() for spelling in known if spelling in raw}
    defaults = {key: value for key, value in family.defaults.items() if key not in _STATED}
    return defaults | usual | raw


def _check_windows(family: Family, full: dict[str, Any]) -> None:
    """No key may cut the text that a token sees, since which tools heed it differs.

    The Llama family attends to the whole text, and transformers' forward pass does. Its KV cache, however, goes by the keys of
    config.json: without `layer_types` a `sliding_window` (or `attention_chunk_size`) makes it drop older tokens, so that
    cached decoding says something else. Families whose configuration class derives `layer_types` (Qwen3) have no such keys.
    A window that no position reaches cuts nothing.

    Raises:
        NotImplementedError: a window that cuts.
    Source: transformers 5, cache_utils.py, get_layer_types_and_kwargs.
    """
    if full.get("layer_types") is not None:
        return
    positions = full["max_position_embeddings"]
    for key in running(family).ambiguous_windows:
        window = full.get(key)
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
    full = _with_defaults(raw, family)
    rope = {"rope_theta": full["rope_theta"]} | _rope_settings(raw)
    heads, hidden = _integer(full, "num_attention_heads"), _integer(full, "hidden_size")
    # For these two, null is a value of its own: "derive it".
    derived = {"num_key_value_heads": heads, "head_dim": hidden // heads}
    sizes = derived | {key: full[key] for key in derived if full.get(key) is not None}
    tie = full["tie_word_embeddings"]
    if not isinstance(tie, bool):
        raise ValueError(f"tie_word_embeddings is {tie!r}; it must be true or false")
    return DecoderConfig(
        vocab_size=_integer(full, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=_integer(full, "intermediate_size"),
        num_layers=_integer(full, "num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=_integer(sizes, "num_key_value_heads"),
        head_dim=_integer(sizes, "head_dim"),
        rope_theta=_positive(rope, "rope_theta"),
        rope_scaling=_rope_scaling(rope, full),
        norm_eps=_positive(full, "rms_norm_eps"),
        qk_norm=_normed(family),
        qkv_bias=family.qkv_bias is True,
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
