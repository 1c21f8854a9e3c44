"""What a config.json says beyond sizes of a network that runs here: numbers of its computation, and what is refused."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import Any, NamedTuple

from hwmodels.networks.families import FAMILIES, family_called
from hwmodels.networks.family import Family, RouterRule, Running, Setting
from hwmodels.networks.packing import Packing, packing_of
from hwmodels.networks.reading import check_fixed, unmodelled_feature
from hwmodels.networks.rope import read_rope
from hwmodels.networks.settings import Settings, shown
from hwmodels.networks.sizes import network_spec
from hwmodels.networks.spec import ExpertSizes, NetworkSpec
from hwmodels.networks.wrappers import STATED, WRAPPERS, Wrapper, text_config, wrapper_of

__all__ = ["ACTIVATION_NAMES", "RunningNetwork", "read_running", "runnable_families", "runnable_names", "running_row"]

#: Keys that any family's config.json may have and transformers heeds in all of them -> the only value that is computed here.
_EVERYWHERE = {"is_causal": True, "is_encoder_decoder": False, "add_cross_attention": False}

#: Activation as files call it -> as jaxspec does.
ACTIVATION_NAMES = {
    **{name: name for name in ("silu", "gelu", "gelu_pytorch_tanh", "relu", "relu2")},
    **{"swish": "silu", "gelu_new": "gelu_pytorch_tanh"},
}

#: Numbers of the computation that a file may state as null: the network has none then.
_OPTIONAL = ("score_scale", "score_cap", "logit_cap")


class RunningNetwork(NamedTuple):
    """What a config.json says of a network that runs here.

    Attributes:
        spec: with its computation.
        wrapper: what the network is the text decoder of; None: it is the whole.
        packing: of a quantized release; None: it is none, or one whose family says how it is read.
        wide: the network's own type is float32.
    """

    family: Family
    spec: NetworkSpec
    wrapper: Wrapper | None
    packing: Packing | None
    wide: bool


def runnable_families() -> dict[str, Family]:
    """Families whose networks run here, by `model_type`."""
    return {name: family for name, family in FAMILIES.items() if family.running is not None}


def runnable_names() -> list[str]:
    """Every `model_type` whose networks, or text decoders, run here, in the order of the alphabet."""
    families = runnable_families().values()
    names, also = {family.name for family in families}, {name for family in families for name in family.also}
    wrappers = [wrapper.name for wrapper in WRAPPERS.values() if wrapper.text in names | also]
    return sorted({*wrappers, *(name for family in families for name in (family.name, *family.also))})


def running_row(family: Family) -> Running:
    """What a row says about running.

    Raises:
        NotImplementedError: networks of the family are priced only.
    """
    if family.running is None:
        raise NotImplementedError(
            f"model_type {family.name!r} is priced (predict --architecture takes its config.json) but does not run; those that "
            f"run: {', '.join(runnable_names())}"
        )
    return family.running


def read_running(raw: dict[str, Any]) -> RunningNetwork:
    """A network that runs here, from its parsed config.json or that of what it is the text decoder of.

    Raises:
        NotImplementedError: a family, or a variant of one, that is not computed here.
        ValueError: a required key is missing, a value is of the wrong kind, or sizes do not fit together.
    """
    whole, raw = raw, text_config(raw)
    name = raw.get("model_type")
    family = family_called(name)
    if family is None:
        feature = unmodelled_feature(raw)
        why = "" if feature is None else f" ({feature})"
        raise NotImplementedError(f"model_type {name!r} is not modelled{why}; known: {', '.join(runnable_names())}")
    row, settings = running_row(family), Settings(raw, family.defaults, family.spellings, "")
    check_fixed(settings, family, str(name), {**family.must_equal, **row.must_equal})
    for key, value in _EVERYWHERE.items():
        if settings.get(key) not in (None, value):
            stated = shown(settings.get(key))
            raise NotImplementedError(f"{name} with {key} = {stated} is not modelled; allowed is {json.dumps(value)}")
    packing = _packing(raw.get("quantization_config"), family, row)
    _check_windows(family, settings)
    settings.flag("tie_word_embeddings", null=False)
    spec = network_spec(settings, family)
    for key in STATED:
        needed = key != "intermediate_size" or not all(spec.expert_layers)
        if needed and not settings.stated(key):
            raise settings.error(key, "is missing; a config.json states it")
    width = spec.head_dim
    if spec.latent is not None:
        # Files may call the rotated part so.
        width = spec.latent.rope_head_dim
        settings.optional_size("q_lora_rank")  # priced networks may say 0 for none
        for key, own in (("num_key_value_heads", spec.num_heads), ("head_dim", width)):
            if settings.get(key) not in (None, own):
                raise settings.error(key, f"is {shown(settings.get(key))}; in this family it is {own}, always")
    rotation: dict[str, Any] = {"score_factor": 1.0}
    if row.rotary is not None:
        rotation |= {"interleaved_rope": row.rotary.interleaved, **read_rope(settings, row.rotary, width)}
    computation = {name: _computed(name, how, settings, family) for name, how in row.computation.items()}
    if (factor := rotation.pop("score_factor")) != 1:
        query = spec.head_dim + (spec.latent.rope_head_dim if spec.latent else 0)
        computation = {"score_scale": query**-0.5 * factor} | computation
    spec = dataclasses.replace(
        spec,
        **rotation,
        rotated=_rotated(row, settings, spec),
        experts=spec.experts and _routed(settings, family, row, spec.experts),
        computation=computation,
    )
    wide = "float32" in (raw.get("dtype"), raw.get("torch_dtype"))
    return RunningNetwork(family, spec, wrapper_of(whole), packing, wide)


def _packing(stated: Any, family: Family, row: Running) -> Packing | None:
    """How weights are packed; None: they are stored as they are computed with, or as the family's releases have them."""
    method = stated.get("quant_method") if isinstance(stated, dict) else None
    if stated is None or (row.packed is not None and method == row.packed):
        return None
    why = f"; allowed is none, or quant_method {row.packed!r}"
    if row.packed is None and isinstance(stated, dict):
        try:
            return packing_of(stated)
        except NotImplementedError as error:
            why = f": {error}"
    raise NotImplementedError(
        f"{family.name} with quant_method {shown(method)} in quantization_config is not modelled{why}: take a "
        "checkpoint in 16 bits"
    )


def _check_windows(family: Family, settings: Settings) -> None:
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
    kinds, rule = settings.get("layer_types"), family.windows
    if kinds is not None:
        listed = kinds if isinstance(kinds, list) else [kinds]
        off = rule is None or settings.get("sliding_window") is None
        off = off or (rule is not None and rule.enabled is not None and settings.get(rule.enabled) is not True)
        known = ("full_attention", family.linear_kind if family.linear else "attention")
        if off and any(kind not in known for kind in listed):
            allowed = " or ".join(map(repr, known[: 1 + family.linear]))
            raise NotImplementedError(
                f"{family.name} with layer_types {shown(kinds)} is not modelled; allowed is {allowed}"
                + ("" if rule is None else ", or windows that are switched on")
            )
        whole = rule is not None and not off and rule.pattern == "all"
        if whole and any(kind != "sliding_attention" for kind in listed):
            raise NotImplementedError(
                f"{family.name} with layer_types {shown(kinds)} is ambiguous: transformers gives all layers a window in a "
                "forward pass but not when it decodes; allowed are 'sliding_attention' and null"
            )
        return
    positions = settings.get("max_position_embeddings")
    # Other patterns are `layer_types` that the family's configuration class derives by itself.
    chunks = rule is None or rule.pattern == "all"
    is_whole = lambda value: isinstance(value, int) and not isinstance(value, bool)
    for key in (*(("sliding_window",) if rule is None else ()), *(("attention_chunk_size",) if chunks else ())):
        window = settings.get(key)
        if window is None or (is_whole(window) and is_whole(positions) and window >= positions):
            continue
        raise NotImplementedError(
            f"{family.name} with {key} = {shown(window)} is ambiguous: transformers attends to the whole text in a forward "
            f"pass but to so many tokens when it decodes; allowed is null, or at least the {shown(positions)} of "
            "max_position_embeddings"
        )


def _computed(name: str, how: Any, settings: Settings, family: Family) -> Any:
    """One field that the row's column `computation` names."""
    if not isinstance(how, Setting):
        return how
    value = settings.get(how.key)
    if name == "activation":
        if not isinstance(value, str) or value not in ACTIVATION_NAMES:
            allowed = ", ".join(ACTIVATION_NAMES)
            raise NotImplementedError(
                f"{family.name} with {how.key} = {shown(value)} is not modelled; allowed are {allowed}"
            )
        return ACTIVATION_NAMES[value]
    return None if value is None and name in _OPTIONAL else settings.positive(how.key) ** how.power


def _rotated(row: Running, settings: Settings, spec: NetworkSpec) -> tuple[bool, ...]:
    """Whether each layer rotates queries and keys."""
    layers = spec.num_layers
    windowed = "never" if row.rotary is None else row.rotary.windowed
    if windowed == "always" or (windowed == "stated" and settings.get("sliding_window") is not None):
        return tuple(window is not None for window in spec.windows)
    if row.rotary is None or row.rotary.skipped is None:
        return (row.rotary is not None,) * layers
    listed, interval = row.rotary.skipped
    stated = settings.get(listed)
    if stated is None:
        every = settings.size(interval)
        return tuple((layer + 1) % every != 0 for layer in range(layers))
    if not isinstance(stated, list) or len(stated) < layers or any(entry not in (0, 1) for entry in stated):
        raise settings.error(
            listed, f"is {shown(stated)}; it must be a list of 0 and 1, one for each of the {layers} layers"
        )
    return tuple(bool(entry) for entry in stated[:layers])


def _routed(settings: Settings, family: Family, row: Running, sizes: ExpertSizes) -> ExpertSizes:
    """Experts with the rule of their routers."""
    rule = row.router
    if rule is None:
        raise NotImplementedError(f"mixtures of experts of the family {family.name} do not run; they are priced only")
    groups, chosen = map(settings.size, rule.groups) if rule.groups and _grouped(settings, rule) else (1, 1)
    clamp = None if family.experts is None else family.experts.clamp
    return settings.fitted(
        functools.partial(dataclasses.replace, sizes),
        scores=rule.scores,
        renormalised=settings.flag(rule.renormalised) if isinstance(rule.renormalised, str) else rule.renormalised,
        added=rule.added,
        scale=1.0 if rule.scale is None else settings.positive(rule.scale),
        groups=groups,
        groups_per_token=chosen,
        group_score=rule.group_score,
        clamp=None if clamp is None else settings.positive(clamp),
    )


def _grouped(settings: Settings, rule: RouterRule) -> bool:
    """Whether groups count in this network."""
    if rule.grouped_by is None:
        return True
    key, whole, grouped = rule.grouped_by
    value = settings.get(key)
    if value not in (whole, grouped):
        raise NotImplementedError(f"{key} = {shown(value)} is not modelled; allowed are {whole!r} and {grouped!r}")
    return value == grouped
