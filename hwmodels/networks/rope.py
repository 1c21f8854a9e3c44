"""Rotary settings of config.json: read in both spellings that transformers has, written in the older one.

`rope_theta` with `rope_scaling` is the spelling of transformers 4, `rope_parameters` that of transformers 5; where both stand,
`rope_scaling` counts, as it does there.

Source: transformers 5, modeling_rope_utils.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from hwmodels.catalog.entries import EntryError
from hwmodels.networks.family import Rotary
from hwmodels.networks.settings import Settings, shown
from hwmodels.networks.spec import NetworkSpec, RopeSpec

__all__ = ["read_rope", "written_rope"]

#: `rope_parameters` of layer types: the names of the types.
_FULL, _LOCAL = "full_attention", "sliding_attention"
_LONGEST = 2**31 - 1
_PARTIAL, _ORIGINAL, _POSITIONS = "partial_rotary_factor", "original_max_position_embeddings", "max_position_embeddings"


def read_rope(settings: Settings, rotary: Rotary, width: int) -> dict[str, Any]:
    """How a network rotates: fields of `NetworkSpec`, and "score_factor", by which scores of attention are multiplied too.

    Args:
        width: elements of a head that may be rotated.
    Raises:
        NotImplementedError: a scaling that is not known, settings per layer type or a partial rotation in a family without.
        EntryError: a value is missing, of the wrong kind or out of range.
    """
    raw = settings.raw
    stated = raw.get("rope_scaling") or raw.get("rope_parameters")
    stated = dict(rotary.default or {}) if stated is None else stated or {}
    if not isinstance(stated, dict):
        raise EntryError(f"{settings.prefix}the rotary settings are {shown(stated)}; they must be an object")
    if rotary.local_theta is not None:
        return _of_two_types(settings, rotary, width)
    if any(isinstance(value, dict) for value in stated.values()):
        raise NotImplementedError(
            f"{settings.prefix}rotary settings per layer type ({shown(list(stated))}) are not modelled; known: one for all"
        )
    share = _share(_nested(settings, stated), _stated_share(settings, rotary, width), rotary)
    rotated = width if share == 1 else int(min(width, _LONGEST) * share)
    has_length = settings.stated(_ORIGINAL) or settings.get(_ORIGINAL) is not None
    beside = {_ORIGINAL: settings.get(_ORIGINAL)} if has_length else {}
    rope = _rope(settings, stated, beside, rotated or width, rotary)
    factor = _score_factor(settings, rope, stated, rotary)
    values = {"rope": rope, "rotary_dim": None if rotated == width else rotated, "score_factor": factor}
    if rotary.query_growth is not None:
        inside = _nested(settings, stated)
        values["query_growth"] = (inside.positive(rotary.query_growth), _length(inside, _ORIGINAL))
    return values


def _of_two_types(settings: Settings, rotary: Rotary, width: int) -> dict[str, Any]:
    """Settings for layers with a window, and for those without."""
    assert rotary.local_theta is not None
    nested, scaling = settings.raw.get("rope_parameters") or {}, settings.raw.get("rope_scaling") or {}
    if not isinstance(nested, dict) or not isinstance(scaling, dict):
        raise EntryError(
            f"{settings.prefix}the rotary settings are {shown(nested)} and {shown(scaling)}; they must be objects"
        )
    odd = [key for key, value in nested.items() if key not in (_FULL, _LOCAL) or not isinstance(value, dict | None)]
    if odd or any(isinstance(value, dict) for value in scaling.values()):
        raise NotImplementedError(
            f"{settings.prefix}rotary settings {shown(nested or scaling)} are not modelled; known: rope_parameters of {_FULL} "
            f"and {_LOCAL}, or rope_scaling for the first"
        )
    by_kind = {kind: dict(nested.get(kind) or {}) for kind in (_FULL, _LOCAL)}
    by_kind[_FULL] |= scaling
    ropes = {}
    for (kind, stated), theta in zip(by_kind.items(), ("rope_theta", rotary.local_theta), strict=True):
        stated = {"rope_theta": settings.get(theta)} | {
            key: value for key, value in stated.items() if value is not None
        }
        _share(_nested(settings, stated), settings.raw.get(_PARTIAL), rotary)
        if stated.get("truncate") is False:
            raise NotImplementedError(
                f"{settings.prefix}truncate = false in the rotary settings of a layer type is ambiguous: transformers reads "
                "over it; allowed is true"
            )
        # Beside them, a length before scaling counts for one set of settings only.
        ropes[kind] = _rope(settings, stated, {}, width, rotary)
    return {"rope": ropes[_FULL], "local_rope": None if ropes[_LOCAL] == ropes[_FULL] else ropes[_LOCAL]}


def _nested(settings: Settings, values: Mapping[str, Any]) -> Settings:
    return Settings(values, {}, {}, settings.where)


def _stated_share(settings: Settings, rotary: Rotary, width: int) -> Any:
    """What the file states of the share of each head that is rotated, or of the number of its elements."""
    if rotary.elements is None or settings.get(rotary.elements) is None or settings.get(_PARTIAL) is not None:
        return settings.get(_PARTIAL)
    # Beyond these, sizes are refused elsewhere.
    return min(settings.size(rotary.elements), _LONGEST) / min(max(width, 1), _LONGEST)


def _share(inside: Settings, beside: Any, rotary: Rotary) -> float:
    """Share of each head that is rotated, by what the rotary settings state and what the file does beside them."""
    stated = inside if inside.get(_PARTIAL) is not None else _nested(inside, {_PARTIAL: beside})
    if stated.get(_PARTIAL) is None:
        return 1.0
    share = stated.positive(_PARTIAL)
    if share != 1 and not rotary.partial:
        raise NotImplementedError(f"{inside.prefix}{_PARTIAL} is not modelled; allowed is 1.0")
    if share > 1:
        raise inside.error(_PARTIAL, f"is {share}; it must be at most 1")
    return share


def _rope(
    settings: Settings, stated: Mapping[str, Any], beside: Mapping[str, Any], rotary_dim: int, rotary: Rotary
) -> RopeSpec:
    """Args: beside: what counts more than the rotary settings."""
    values = {"rope_theta": settings.get("rope_theta")} | {k: v for k, v in stated.items() if v is not None}
    kind = values.get("rope_type", values.get("type", "default"))
    if kind in rotary.longrope_spellings:
        kind = "longrope"
    base = _nested(settings, values).positive("rope_theta")
    if rotary.stretched and kind == "dynamic" and values.get("alpha"):
        _check_width(settings, "dynamic", rotary_dim, rotary_dim > 2, "more than 2")
        base *= _nested(settings, values).positive("alpha") ** (rotary_dim / (rotary_dim - 2))
        kind = "default"
    if kind == "default":
        return RopeSpec(base)
    if not isinstance(kind, str) or kind not in _READ:
        known = ", ".join(sorted(_READ))
        raise NotImplementedError(
            f"{settings.prefix}rope scaling {shown(kind)} is not modelled; known: default, {known}"
        )
    # The precedence of transformers 5: beside the rotary settings, within them, the longest position of all.
    longest = settings.get(_POSITIONS)
    context = _nested(settings, {_ORIGINAL: longest, **values, **beside, _POSITIONS: longest})
    return RopeSpec(base, kind, _READ[kind](context, rotary_dim, rotary))


def _score_factor(settings: Settings, rope: RopeSpec, stated: Mapping[str, Any], rotary: Rotary) -> float:
    """What the family makes of yarn's `mscale_all_dim`.

    Source: DeepSeek-V2's release; transformers 5, `yarn_apply_mscale`.
    """
    if not rotary.scores or rope.kind == "default" or not stated.get("mscale_all_dim"):
        return 1.0
    if rope.kind != "yarn":
        raise NotImplementedError(
            f"{settings.prefix}mscale_all_dim beside rope scaling {rope.kind!r} is not modelled; known: beside 'yarn'"
        )
    return _sharpened(rope.values["factor"], rope.values["score_mscale"]) ** 2


def _sharpened(factor: float, scale: float) -> float:
    """Yarn's factor of a network's logits for texts that are longer by `factor`."""
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def _length(values: Settings, key: str) -> int:
    """Tokens of a text."""
    return values.size(key, most=_LONGEST)


def _factor(values: Settings) -> float:
    """The stated factor, or by how much the longest text has grown."""
    if values.stated("factor"):
        return values.positive("factor")
    return _length(values, _POSITIONS) / _length(values, _ORIGINAL)


def _check_width(values: Settings, kind: str, rotary_dim: int, fits: bool, allowed: str) -> None:
    if not fits:
        raise EntryError(f"{values.prefix}{rotary_dim} elements of a head are rotated; {kind} scaling needs {allowed}")


def _linear(values: Settings, rotary_dim: int, rotary: Rotary) -> dict[str, Any]:
    return {"factor": values.positive("factor")}


def _dynamic(values: Settings, rotary_dim: int, rotary: Rotary) -> dict[str, Any]:
    _check_width(values, "dynamic", rotary_dim, rotary_dim > 2, "more than 2")
    return {"factor": values.positive("factor"), _POSITIONS: _length(values, _POSITIONS)}


def _llama3(values: Settings, rotary_dim: int, rotary: Rotary) -> dict[str, Any]:
    low, high = values.positive("low_freq_factor"), values.positive("high_freq_factor")
    if low >= high:
        raise values.error("low_freq_factor", f"is {low} and high_freq_factor {high}; the second must be larger")
    own = {"factor": values.positive("factor"), "low_freq_factor": low, "high_freq_factor": high}
    return own | {_ORIGINAL: _length(values, _ORIGINAL)}


def _yarn(values: Settings, rotary_dim: int, rotary: Rotary) -> dict[str, Any]:
    _check_width(values, "yarn", rotary_dim, rotary_dim % 2 == 0, "an even number")
    factor = _factor(values)
    if values.stated("attention_factor"):
        attention = values.positive("attention_factor")
    elif values.get("mscale") and values.get("mscale_all_dim"):
        attention = _sharpened(factor, values.positive("mscale"))
        attention /= _sharpened(factor, values.positive("mscale_all_dim"))
    else:
        attention = _sharpened(factor, 1.0)
    if values.positive("rope_theta") <= 1:
        raise values.error("rope_theta", f"is {values.get('rope_theta')!r}; yarn scaling needs more than 1")
    return {
        "factor": factor,
        _ORIGINAL: _length(values, _ORIGINAL),
        "attention_factor": attention,
        "beta_fast": values.positive("beta_fast") if values.get("beta_fast") else 32.0,
        "beta_slow": values.positive("beta_slow") if values.get("beta_slow") else 1.0,
        "truncate": values.flag("truncate", null=False) if values.stated("truncate") else True,
        "score_mscale": values.positive("mscale_all_dim") if rotary.scores and values.get("mscale_all_dim") else 0.0,
    }


def _longrope(values: Settings, rotary_dim: int, rotary: Rotary) -> dict[str, Any]:
    _check_width(values, "longrope", rotary_dim, rotary_dim % 2 == 0, "an even number")
    original, factor = _length(values, _ORIGINAL), _factor(values)
    if values.stated("attention_factor"):
        attention = values.positive("attention_factor")
    else:
        if factor > 1 and original < 2:
            raise values.error(_ORIGINAL, f"is {original}; longrope scaling needs at least 2")
        attention = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    sides = {key: values.positives(key, rotary_dim // 2) for key in ("short_factor", "long_factor")}
    return {**sides, _ORIGINAL: original, "attention_factor": attention}


#: `rope_type` -> what reads its settings.
_READ: dict[str, Callable[[Settings, int, Rotary], dict[str, Any]]] = {
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}


def written_rope(spec: NetworkSpec, rotary: Rotary, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of config.json that say how a network rotates.

    Args:
        defaults: the family's.
    """
    main, local = spec.rope, spec.local_rope or spec.rope
    # Where a family has a default of its own beside the rotary settings, it counts more than what is said within them.
    beside = (_POSITIONS, *(_ORIGINAL,) * (_ORIGINAL in defaults))
    raw = {key: rope.values[key] for rope in (main, local) for key in beside if key in rope.values}
    if rotary.skipped is not None:
        raw[rotary.skipped[0]] = [int(rotated) for rotated in spec.rotated]
    if rotary.local_theta is not None:
        kinds = {_FULL: main, _LOCAL: local}
        return raw | {
            "rope_parameters": {kind: _written(rope) | {"rope_theta": rope.theta} for kind, rope in kinds.items()}
        }
    if rotary.partial:
        rotated = spec.head_dim if spec.rotary_dim is None else spec.rotary_dim
        raw[_PARTIAL] = _ratio(rotated if spec.latent is None else spec.latent.rope_head_dim, spec.head_dim)
    raw["rope_theta"] = main.theta
    scaling = _written(main)
    if rotary.query_growth is not None and spec.query_growth is not None:
        scaling |= zip((rotary.query_growth, _ORIGINAL), spec.query_growth, strict=True)
    return raw if main.kind == "default" and rotary.default is None else raw | {"rope_scaling": scaling}


def _written(rope: RopeSpec) -> dict[str, Any]:
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in rope.values.items()}
    plain.pop(_POSITIONS, None)
    if (scores := plain.pop("score_mscale", 0.0)) != 0:
        plain["mscale_all_dim"] = scores
    return {"rope_type": rope.kind, **plain}


def _ratio(part: int, whole: int) -> float:
    """A share that gives the part back when it is multiplied by the whole and cut."""
    share = part / whole
    return share if int(whole * share) == part else math.nextafter(share, 2.0)
