"""Rotary settings of config.json: read in both spellings that transformers has, written in the older one.

`rope_theta` with `rope_scaling` is the spelling of transformers 4, `rope_parameters` that of transformers 5; where both stand,
`rope_scaling` counts, as it does there.

Source: transformers 5, modeling_rope_utils.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hwmodels.catalog.huggingface import Rotary
from jaxspec.models.config_values import flag, integer, positive, positives
from jaxspec.models.rope_scaling import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    Rope,
    RopeScaling,
    YarnScaling,
)
from jaxspec.models.sizes import DecoderSizes

__all__ = ["RopeSettings", "read_rope", "written_rope"]

#: `rope_parameters` of layer types: the names of the types.
_FULL, _LOCAL = "full_attention", "sliding_attention"
_LONGEST = 2**31 - 1
_SCORES = "score_mscale"  # of `YarnScaling`, which files spell as `mscale_all_dim`
_PARTIAL, _ORIGINAL = "partial_rotary_factor", "original_max_position_embeddings"


class RopeSettings(NamedTuple):
    """How a network rotates: the fields of `DecoderSizes` of the same names, `rope` being theta and scaling.

    Attributes:
        score_factor: by which the scores of attention are multiplied beside.
    """

    rope: Rope
    local_rope: Rope | None
    rotary_dim: int | None
    score_factor: float = 1.0


def read_rope(raw: Mapping[str, Any], full: Mapping[str, Any], rotary: Rotary, head_dim: int) -> RopeSettings:
    """The rotary settings of a parsed config.json.

    Args:
        raw: as the file has it. full: with the family's defaults.
    Raises:
        NotImplementedError: a scaling that is not known, settings per layer type or a partial rotation in a family without.
        ValueError: a value is missing, of the wrong kind or out of range.
    """
    stated = raw.get("rope_scaling") or raw.get("rope_parameters")
    stated = dict(rotary.default or {}) if stated is None else stated or {}
    if not isinstance(stated, dict):
        raise ValueError(f"the rotary settings are {stated!r}; they must be an object")
    per_type = [key for key, value in stated.items() if isinstance(value, dict)]
    if rotary.local_theta is None:
        if per_type:
            raise NotImplementedError(
                f"rotary settings per layer type ({list(stated)}) are not modelled; known: one for all"
            )
        share = _share(stated, _with_share(full, rotary, head_dim), rotary)
        rotated = head_dim if share == 1 else int(min(head_dim, _LONGEST) * share)
        rotary_dim = None if rotated == head_dim else rotated
        rope = _rope(stated, full["rope_theta"], full, rotary_dim or head_dim, rotary)
        return RopeSettings(rope, None, rotary_dim, _score_factor(rope, stated, rotary))
    return _of_two_types(raw, full, rotary, head_dim)


def _of_two_types(raw: Mapping[str, Any], full: Mapping[str, Any], rotary: Rotary, head_dim: int) -> RopeSettings:
    """Settings for layers with a window, and for those without."""
    assert rotary.local_theta is not None
    nested, scaling = raw.get("rope_parameters") or {}, raw.get("rope_scaling") or {}
    if not isinstance(nested, dict) or not isinstance(scaling, dict):
        raise ValueError(f"the rotary settings are {nested!r} and {scaling!r}; they must be objects")
    odd = [key for key, value in nested.items() if key not in (_FULL, _LOCAL) or not isinstance(value, dict | None)]
    if odd or any(isinstance(value, dict) for value in scaling.values()):
        raise NotImplementedError(
            f"rotary settings {nested or scaling!r} are not modelled; known: rope_parameters of {_FULL} and {_LOCAL}, or "
            f"rope_scaling for the first"
        )
    found = {kind: dict(nested.get(kind) or {}) for kind in (_FULL, _LOCAL)}
    found[_FULL] |= scaling
    for settings in found.values():
        _share(settings, raw, rotary)
        if settings.get("truncate") is False:
            raise NotImplementedError(
                "truncate = false in the rotary settings of a layer type is ambiguous: transformers reads over it; allowed is "
                "true"
            )
    # Beside them, a length before scaling counts for one set of settings only.
    outer = {key: value for key, value in full.items() if key != _ORIGINAL}
    ropes = {
        kind: _rope(found[kind], theta, outer, head_dim, rotary)
        for kind, theta in ((_FULL, full["rope_theta"]), (_LOCAL, full[rotary.local_theta]))
    }
    local = None if ropes[_LOCAL] == ropes[_FULL] else ropes[_LOCAL]
    return RopeSettings(ropes[_FULL], local, None)


def _with_share(full: Mapping[str, Any], rotary: Rotary, head_dim: int) -> Mapping[str, Any]:
    """With the share of each head that is rotated, where the file states the number of its elements."""
    key = rotary.elements
    if key is None or full.get(key) is None or full.get(_PARTIAL) is not None:
        return full
    # Beyond these, sizes are refused elsewhere.
    return {**full, _PARTIAL: min(integer(full, key), _LONGEST) / min(max(head_dim, 1), _LONGEST)}


def _share(settings: Mapping[str, Any], full: Mapping[str, Any], rotary: Rotary) -> float:
    """Share of each head that is rotated."""
    source = full if settings.get(_PARTIAL) is None else settings
    if source.get(_PARTIAL) is None:
        return 1.0
    share = positive(source, _PARTIAL)
    if share != 1 and not rotary.partial:
        raise NotImplementedError(f"{_PARTIAL} is not modelled; allowed is 1.0")
    if share > 1:
        raise ValueError(f"{_PARTIAL} is {share}; it must be at most 1")
    return share


def _rope(settings: Mapping[str, Any], theta: Any, full: Mapping[str, Any], rotary_dim: int, rotary: Rotary) -> Rope:
    values = {"rope_theta": theta} | {key: value for key, value in settings.items() if value is not None}
    kind = values.get("rope_type", values.get("type", "default"))
    if kind in rotary.longrope_spellings:
        kind = "longrope"
    base = positive(values, "rope_theta")
    if kind == "default":
        return Rope(base)
    if not isinstance(kind, str) or kind not in _READ:
        raise NotImplementedError(f"rope scaling {kind!r} is not modelled; known: default, {', '.join(sorted(_READ))}")
    # The precedence of transformers 5: beside the rotary settings, within them, the longest position of all.
    longest = full["max_position_embeddings"]
    original = {_ORIGINAL: longest} | values | {key: full[key] for key in (_ORIGINAL,) if key in full}
    scores = values.get("mscale_all_dim") if rotary.scores else None
    context = {**values, _SCORES: scores, _ORIGINAL: original[_ORIGINAL], "max_position_embeddings": longest}
    return Rope(base, _READ[kind](context, rotary_dim))


def _score_factor(rope: Rope, stated: Mapping[str, Any], rotary: Rotary) -> float:
    """What the family makes of yarn's `mscale_all_dim`.

    Source: DeepSeek-V2's release; transformers 5, `yarn_apply_mscale`.
    """
    if not rotary.scores or rope.scaling is None or not stated.get("mscale_all_dim"):
        return 1.0
    settings = vars(rope.scaling)
    if "score_mscale" not in settings:
        raise NotImplementedError(
            f"mscale_all_dim beside rope scaling {_TYPES[type(rope.scaling)]!r} is not modelled; known: beside 'yarn'"
        )
    return _sharpened(settings["factor"], settings["score_mscale"]) ** 2


def _sharpened(factor: float, scale: float) -> float:
    """Yarn's factor of a network's logits for texts that are longer by `factor`."""
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def _length(values: Mapping[str, Any], key: str) -> int:
    """Tokens of a text."""
    value = integer(values, key)
    if value > _LONGEST:
        raise ValueError(f"{key} is {value!r}; it must be at most {_LONGEST}")
    return value


def _linear(values: Mapping[str, Any], rotary_dim: int) -> RopeScaling:
    return LinearScaling(positive(values, "factor"))


def _dynamic(values: Mapping[str, Any], rotary_dim: int) -> RopeScaling:
    if rotary_dim <= 2:
        raise ValueError(f"{rotary_dim} elements of a head are rotated; dynamic scaling needs more than 2")
    return DynamicScaling(positive(values, "factor"), _length(values, "max_position_embeddings"))


def _llama3(values: Mapping[str, Any], rotary_dim: int) -> RopeScaling:
    low, high = positive(values, "low_freq_factor"), positive(values, "high_freq_factor")
    if low >= high:
        raise ValueError(f"low_freq_factor is {low} and high_freq_factor {high}; the second must be larger")
    return Llama3Scaling(positive(values, "factor"), low, high, _length(values, _ORIGINAL))


def _factor(values: Mapping[str, Any]) -> float:
    """The stated factor, or by how much the longest text has grown."""
    if "factor" in values:
        return positive(values, "factor")
    return _length(values, "max_position_embeddings") / _length(values, _ORIGINAL)


def _even(kind: str, rotary_dim: int) -> None:
    if rotary_dim % 2:
        raise ValueError(f"{rotary_dim} elements of a head are rotated; {kind} scaling needs an even number")


def _yarn(values: Mapping[str, Any], rotary_dim: int) -> RopeScaling:
    _even("yarn", rotary_dim)
    factor = _factor(values)
    if "attention_factor" in values:
        attention = positive(values, "attention_factor")
    elif values.get("mscale") and values.get("mscale_all_dim"):
        attention = _sharpened(factor, positive(values, "mscale"))
        attention /= _sharpened(factor, positive(values, "mscale_all_dim"))
    else:
        attention = _sharpened(factor, 1.0)
    turns = {"beta_fast": 32.0, "beta_slow": 1.0} | {k: v for k, v in values.items() if k.startswith("beta_") and v}
    if positive(values, "rope_theta") <= 1:
        raise ValueError(f"rope_theta is {values['rope_theta']!r}; yarn scaling needs more than 1")
    return YarnScaling(
        factor=factor,
        original_max_position_embeddings=_length(values, _ORIGINAL),
        attention_factor=attention,
        beta_fast=positive(turns, "beta_fast"),
        beta_slow=positive(turns, "beta_slow"),
        truncate=flag({"truncate": True} | dict(values), "truncate"),
        score_mscale=positive(values, _SCORES) if values.get(_SCORES) else 0.0,
    )


def _longrope(values: Mapping[str, Any], rotary_dim: int) -> RopeScaling:
    _even("longrope", rotary_dim)
    original, factor = _length(values, _ORIGINAL), _factor(values)
    if "attention_factor" in values:
        attention = positive(values, "attention_factor")
    else:
        if factor > 1 and original < 2:
            raise ValueError(f"{_ORIGINAL} is {original}; longrope scaling needs at least 2")
        attention = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    short, long = (positives(values, key, rotary_dim // 2) for key in ("short_factor", "long_factor"))
    return LongRopeScaling(short, long, original, attention)


#: `rope_type` -> what reads its settings.
_READ: dict[str, Callable[[Mapping[str, Any], int], RopeScaling]] = {
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
_TYPES = {
    LinearScaling: "linear",
    DynamicScaling: "dynamic",
    Llama3Scaling: "llama3",
    YarnScaling: "yarn",
    LongRopeScaling: "longrope",
}


def written_rope(sizes: DecoderSizes, rotary: Rotary, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of config.json that say how a network rotates.

    Args:
        defaults: the family's.
    """
    main = Rope(sizes.rope_theta, sizes.rope_scaling)
    raw: dict[str, Any] = {}
    for rope in (main, sizes.local_rope or main):
        values = {} if rope.scaling is None else vars(rope.scaling)
        # Where a family has a default of its own beside the rotary settings, it counts more than what is said within them.
        beside = ("max_position_embeddings", *(_ORIGINAL,) * (_ORIGINAL in defaults))
        raw |= {key: values[key] for key in beside if key in values}
    if rotary.local_theta is not None:
        kinds = {_FULL: main, _LOCAL: sizes.local_rope or main}
        return raw | {
            "rope_parameters": {kind: _written(rope) | {"rope_theta": rope.theta} for kind, rope in kinds.items()}
        }
    if rotary.partial:
        raw[_PARTIAL] = _ratio(sizes.rotated_elements, sizes.head_dim)
    raw["rope_theta"] = main.theta
    return raw if main.scaling is None and rotary.default is None else raw | {"rope_scaling": _written(main)}


def _written(rope: Rope) -> dict[str, Any]:
    if rope.scaling is None:
        return {"rope_type": "default"}
    values = {key: value for key, value in vars(rope.scaling).items() if key != "max_position_embeddings"}
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
    if (scores := plain.pop(_SCORES, 0.0)) != 0:
        plain["mscale_all_dim"] = scores
    return {"rope_type": _TYPES[type(rope.scaling)], **plain}


def _ratio(part: int, whole: int) -> float:
    """A share that gives the part back when it is multiplied by the whole and cut."""
    share = part / whole
    return share if int(whole * share) == part else math.nextafter(share, 2.0)
