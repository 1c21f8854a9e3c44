"""Which layers see a sliding window, and which have linear attention, by `layer_types` or by the rule of the family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwmodels.catalog.huggingface.family import Family
from hwmodels.catalog.huggingface.settings import LARGEST_LAYERS, Settings, shown

__all__ = ["layer_windows", "layers_with_linear_attention", "linear_layers", "window_layers"]

_FULL, _SLIDING, _LINEAR = "full_attention", "sliding_attention", "linear_attention"


def window_layers(settings: Settings, family: Family) -> list[int | None]:
    """Tokens that each layer sees, itself included; None: all.

    Raises:
        EntryError: a value is missing, of the wrong kind or out of range.
        NotImplementedError: layers of another kind than full or sliding attention.
    """
    layers = settings.size("num_hidden_layers", most=LARGEST_LAYERS)
    kinds = settings.names("layer_types")
    if kinds is not None:
        allowed = (_FULL, _LINEAR) if family.linear else (_FULL, _SLIDING)
        others = sorted(set(kinds) - set(allowed))
        if others:
            raise NotImplementedError(
                f"{settings.where}: layer_types has {shown(others)}, which are not modelled; allowed: {', '.join(allowed)}"
            )
        sliding = [kind == _SLIDING for kind in kinds]
    else:
        sliding = _sliding(settings, family, layers)
    window = settings.size("sliding_window") if any(sliding) else None
    return [window if slides else None for slides in sliding]


def linear_layers(settings: Settings, family: Family) -> list[bool]:
    """Whether each layer has linear attention.

    Raises:
        EntryError: a value is missing, of the wrong kind or out of range.
    """
    layers = settings.size("num_hidden_layers", most=LARGEST_LAYERS)
    if not family.linear:
        return [False] * layers
    kinds = settings.names("layer_types")
    if kinds is not None:
        return [kind == _LINEAR for kind in kinds]
    every = settings.size("full_attention_interval")
    return [(layer + 1) % every != 0 for layer in range(layers)]


def layer_windows(raw: Mapping[str, Any], family: Family) -> list[int | None]:
    """`window_layers` of a parsed config.json."""
    return window_layers(Settings(raw, family.defaults, family.spellings, "windows"), family)


def layers_with_linear_attention(raw: Mapping[str, Any], family: Family) -> list[bool]:
    """`linear_layers` of a parsed config.json."""
    return linear_layers(Settings(raw, family.defaults, family.spellings, "layers"), family)


def _sliding(settings: Settings, family: Family, layers: int) -> list[bool]:
    rule = family.windows
    if rule is None or settings.get("sliding_window") is None:
        return [False] * layers
    if rule.enabled is not None and not settings.flag(rule.enabled):
        return [False] * layers
    if rule.pattern == "all":
        return [True] * layers
    if rule.pattern == "all_but_every_nth":
        period = settings.size("sliding_window_pattern")
        return [(layer + 1) % period != 0 for layer in range(layers)]
    first = settings.size("max_window_layers", least=0)
    if rule.pattern == "from_layer":
        return [layer >= first for layer in range(layers)]
    return [layer <= first - 1 and layer % 2 == 0 for layer in range(layers)]
