"""Networks that run, by the rows of the one table of Hugging Face families.

A row (`hwmodels.catalog.huggingface`) says what a family's config.json means and what its checkpoints call their tensors; here
that becomes a `DecoderConfig`. A new family with known blocks is a new row, never a branch.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from hwmodels.catalog.huggingface import (
    FAMILIES,
    WRAPPERS,
    Family,
    Running,
    Setting,
    family_called,
    layer_windows,
    unmodelled_feature,
)
from jaxspec.models.activations import ACTIVATION_SPELLINGS, ACTIVATIONS
from jaxspec.models.blocks import Experts, GroupedAttention, LatentAttention
from jaxspec.models.config import DecoderConfig
from jaxspec.models.config_values import flag, integer, positive
from jaxspec.models.expert_settings import Mixture, read_experts
from jaxspec.models.latent_settings import PLAIN_HEAD_DIM, read_latent
from jaxspec.models.linear_settings import linear_pattern, read_linear
from jaxspec.models.quantized_files import packing_of
from jaxspec.models.rope_scaling import Rope
from jaxspec.models.rope_settings import RopeSettings, read_rope
from jaxspec.models.sizes import LearnedPositions
from jaxspec.models.text_config import STATED, text_config

__all__ = ["decoder_config", "family_of", "runnable_families", "runnable_names", "running"]

#: Keys that any family's config.json may have and transformers heeds in all of them -> the only value that is computed here.
_EVERYWHERE = {"is_causal": True, "is_encoder_decoder": False, "add_cross_attention": False}


def runnable_families() -> dict[str, Family]:
    """Families whose networks run here, by `model_type`."""
    return {name: family for name, family in FAMILIES.items() if family.running is not None}


def runnable_names() -> list[str]:
    """Every `model_type` whose networks, or text decoders, run here, in the order of the alphabet."""
    families = runnable_families().values()
    return sorted({*WRAPPERS, *(name for family in families for name in (family.name, *family.also))})


def running(family: Family) -> Running:
    """What a row says about running.

    Raises:
        NotImplementedError: networks of the family are priced only.
    """
    if family.running is None:
        known = ", ".join(runnable_names())
        raise NotImplementedError(
            f"model_type {family.name!r} is priced (predict --architecture takes its config.json) but does not run; those that "
            f"run: {known}"
        )
    return family.running


def family_of(raw: dict[str, Any]) -> Family:
    """The family of a parsed config.json, or of the text decoder that it describes.

    Raises:
        NotImplementedError: a family, or a variant of one, that this decoder does not compute.
        ValueError: see `text_config`.
    """
    raw = text_config(raw)
    name = raw.get("model_type")
    family = family_called(name)
    if family is None:
        feature = unmodelled_feature(raw)
        why = "" if feature is None else f" ({feature})"
        raise NotImplementedError(f"model_type {name!r} is not modelled{why}; known: {', '.join(runnable_names())}")
    row, full = running(family), _with_defaults(raw, family)
    for key, value in {**family.must_equal, **row.must_equal}.items():
        wanted = full.get(value.key) if isinstance(value, Setting) else value
        stated = full.get(key, wanted)
        if stated != wanted and not (stated is None and key in family.must_equal):
            allowed = "null" if wanted is None else repr(wanted)
            raise NotImplementedError(f"{name} with {key} = {stated!r} is not modelled; allowed is {allowed}")
    for key, value in _EVERYWHERE.items():
        if full.get(key) not in (None, value):
            raise NotImplementedError(
                f"{name} with {key} = {full[key]!r} is not modelled; allowed is {json.dumps(value)}"
            )
    _check_quantization(raw.get("quantization_config"), family)
    _check_windows(family, full)
    return family


def _with_defaults(raw: dict[str, Any], family: Family) -> dict[str, Any]:
    """By the usual keys: what the file states, and the family's defaults of what releases may leave out."""
    usual = {key: raw[spelling] for key, known in family.spellings.items() for spelling in known if spelling in raw}
    defaults = {key: value for key, value in family.defaults.items() if key not in STATED}
    return defaults | usual | raw


def _check_quantization(stated: Any, family: Family) -> None:
    """Weights are stored as they are computed with, or packed in a way that is read here."""
    packed = running(family).packed
    method = stated.get("quant_method") if isinstance(stated, dict) else None
    if stated is None or (packed is not None and method == packed):
        return
    why = f"; allowed is none, or quant_method {packed!r}"
    if packed is None and isinstance(stated, dict):
        try:
            packing_of(stated)
            return
        except NotImplementedError as error:
            why = f": {error}"
    raise NotImplementedError(
        f"{family.name} with quant_method {method!r} in quantization_config is not modelled{why}: take a checkpoint in 16 bits"
    )


def _check_windows(family: Family, full: dict[str, Any]) -> None:
    """No key may cut the text that a token sees where tools differ in whether they heed it.

    Many families (Llama, Granite, OLMo 2) attend to the whole text, and transformers' forward pass does. Its KV cache, however,
    goes by the keys of config.json: without `layer_types` a `sliding_window` (or `attention_chunk_size`) makes it drop older
    tokens, so that cached decoding says something else. Families whose configuration class derives `layer_types` (Qwen3) have
    no such keys. A window that no position reaches cuts nothing. Where `layer_types` is stated, the cache goes by it, and so
    must the family.

    Raises:
        NotImplementedError: a window that one tool heeds and another does not.
    Source: transformers 5, cache_utils.py, get_layer_types_and_kwargs.
    """
    kinds, rule = full.get("layer_types"), family.windows
    if kinds is not None:
        listed = kinds if isinstance(kinds, list) else [kinds]
        off = (
            rule is None or full.get("sliding_window") is None or (rule.enabled and full.get(rule.enabled) is not True)
        )
        known = ("full_attention", "linear_attention") if family.linear else ("full_attention",)
        allowed = " or ".join(map(repr, known))
        if off and any(kind not in known for kind in listed):
            raise NotImplementedError(
                f"{family.name} with layer_types {kinds!r} is not modelled; allowed is {allowed}"
                + ("" if rule is None else ", or windows that are switched on")
            )
        if (
            rule is not None
            and not off
            and rule.pattern == "all"
            and any(kind != "sliding_attention" for kind in listed)
        ):
            raise NotImplementedError(
                f"{family.name} with layer_types {kinds!r} is ambiguous: transformers gives all layers a window in a forward "
                "pass but not when it decodes; allowed are 'sliding_attention' and null"
            )
        return
    positions = full.get("max_position_embeddings")
    # Other patterns are `layer_types` that the family's configuration class derives by itself.
    chunks = rule is None or rule.pattern == "all"
    for key in (*(("sliding_window",) if rule is None else ()), *(("attention_chunk_size",) if chunks else ())):
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

    Raises:
        NotImplementedError: see `family_of` and `read_rope`; an activation that is not known.
        ValueError: a required key is missing, a value is of the wrong kind, or sizes do not fit together.
    """
    raw = text_config(raw)
    family = family_of(raw)
    row, full = running(family), _with_defaults(raw, family)
    layers = integer(full, "num_hidden_layers")
    heads, hidden = integer(full, "num_attention_heads"), integer(full, "hidden_size")
    # For these two, null is a value of its own: "derive it".
    latent = read_latent(full, family)
    # Of latent attention, files may call the rotated part so.
    derived = {"num_key_value_heads": heads, "head_dim": latent.rope_head_dim if latent else hidden // heads}
    for key, free in (("num_key_value_heads", family.grouped_queries), ("head_dim", family.free_head_dim)):
        if not free and full.get(key) not in (None, derived[key]):
            raise ValueError(f"{key} is {full[key]!r}; in this family it is {derived[key]}, always")
    sizes = derived | {key: full[key] for key in derived if full.get(key) is not None}
    head_dim = integer(sizes, "head_dim") if sizes["head_dim"] != 0 else 0
    rope = RopeSettings(Rope(), None, None)
    if row.rotary is not None:
        rope = read_rope(raw, full, row.rotary, head_dim)
    if latent is not None:
        head_dim = integer(full, PLAIN_HEAD_DIM)
    query_dim = head_dim + (latent.rope_head_dim if latent else 0)
    on = lambda switch: _on(full, switch)
    positions, mixture, windows = None, read_experts(raw, family), _windows(raw, family)
    attention = linear_pattern(raw, family) if family.linear else (LatentAttention() if latent else GroupedAttention(),)
    if family.learned_positions is not None:
        offset = family.learned_positions
        positions = LearnedPositions(integer(full, "max_position_embeddings") + offset, offset)
    return DecoderConfig(
        vocab_size=integer(full, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=_intermediate_size(full, mixture),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=integer(sizes, "num_key_value_heads"),
        head_dim=head_dim,
        rope_theta=rope.rope.theta,
        rope_scaling=rope.rope.scaling,
        local_rope=rope.local_rope,
        rotary_dim=rope.rotary_dim,
        interleaved_rope=row.rotary is not None and row.rotary.interleaved,
        rotated=_rotated(row, full, windows),
        windows=windows,
        learned_positions=positions,
        qk_norm=_norms_queries(family, full),
        qk_norm_whole=family.qk_norm.endswith("all") and _norms_queries(family, full),
        qkv_bias=on(family.qkv_bias),
        o_bias=on(family.o_bias),
        ffn_bias=on(family.ffn_bias),
        tie_embeddings=flag(full, "tie_word_embeddings"),
        experts=mixture.sizes,
        feed_forward=mixture.feed_forward,
        latent=latent,
        attention=attention,
        linear=read_linear(full, family, attention),
        attention_gate=family.attention_gate,
        **({} if rope.score_factor == 1 else {"score_scale": query_dim**-0.5 * rope.score_factor}),
        **{name: _computed(name, how, full, family) for name, how in row.computation.items()},
    )


def _intermediate_size(full: dict[str, Any], mixture: Mixture) -> int:
    """Of dense layers; files of networks without any may leave it out, or state 0."""
    stated = full.get("intermediate_size") not in (None, 0)
    if not stated and mixture.sizes is not None and set(mixture.feed_forward) == {Experts()}:
        return mixture.sizes.inner_size
    return integer(full, "intermediate_size")


def _windows(raw: dict[str, Any], family: Family) -> tuple[int | None, ...]:
    """What each layer sees; one entry for all where the family has no windows and the file names no kinds of layer."""
    if family.windows is None and raw.get("layer_types") is None:
        return (None,)
    return tuple(layer_windows(raw, family))


def _norms_queries(family: Family, full: dict[str, Any]) -> bool:
    return _on(full, "use_qk_norm") if family.qk_norm.startswith("optional") else family.qk_norm != "none"


def _on(full: dict[str, Any], switch: bool | str) -> bool:
    if isinstance(switch, bool):
        return switch
    return full.get(switch) is not None and flag(full, switch)


def _rotated(row: Running, full: dict[str, Any], windows: tuple[int | None, ...]) -> tuple[bool, ...]:
    """Whether each layer rotates queries and keys."""
    if row.rotary is not None and row.rotary.windowed and full.get("sliding_window") is not None:
        return tuple(window is not None for window in windows)
    if row.rotary is None or row.rotary.skipped is None:
        return (row.rotary is not None,)
    layers, (listed, interval) = integer(full, "num_hidden_layers"), row.rotary.skipped
    stated = full.get(listed)
    if stated is None:
        every = integer(full, interval)
        return tuple((layer + 1) % every != 0 for layer in range(layers))
    if not isinstance(stated, list) or len(stated) < layers or any(entry not in (0, 1) for entry in stated):
        raise ValueError(f"{listed} is {stated!r}; it must be a list of 0 and 1, one for each of the {layers} layers")
    return tuple(bool(entry) for entry in stated[:layers])


#: Defaults of the fields of a configuration: what may be null, and what is a name.
_FIELDS = {field.name: field.default for field in dataclasses.fields(DecoderConfig)}


def _computed(name: str, how: Any, full: dict[str, Any], family: Family) -> Any:
    """One field that the row's column `computation` names."""
    if not isinstance(how, Setting):
        return how
    value = full.get(how.key)
    if name == "activation":
        found = ACTIVATION_SPELLINGS.get(value, value) if isinstance(value, str) else None
        if found not in ACTIVATIONS:
            allowed = ", ".join([*ACTIVATIONS, *ACTIVATION_SPELLINGS])
            raise NotImplementedError(
                f"{family.name} with {how.key} = {value!r} is not modelled; allowed are {allowed}"
            )
        return found
    if value is None and _FIELDS[name] is None:
        return None
    return positive(full, how.key) ** how.power
