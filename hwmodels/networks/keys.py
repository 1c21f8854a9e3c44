"""What becomes of each key of a config.json: the family reads it, it cannot change a cost, it is refused, or it is named.

Refused are keys that announce what is not modelled (`announced`); whatever no list here has is named in a note, so that no key
is dropped in silence. A value that turns a feature off needs no list.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping
from fnmatch import translate
from typing import Any

from hwmodels.networks.family import Family, Setting
from hwmodels.networks.settings import shown
from hwmodels.tables import read_table

__all__ = ["IRRELEVANT", "ORDINARY", "announced", "irrelevance", "is_off", "keys_of", "unknown_keys"]

_LISTS = read_table(__package__, "keys.toml")

#: Reason why a key cannot change what a step costs -> names, or globs of names, of any family.
ORDINARY: dict[str, list[str]] = _LISTS["ordinary"]

#: The same with keys that change values alone, in families whose sizes are known.
IRRELEVANT: dict[str, list[str]] = ORDINARY | _LISTS["known_sizes"]

#: The same of sizes of experts, where a family has none.
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


def is_off(value: Any) -> bool:
    """Whether a value turns its key's feature off: null, false, 0, a factor of 1, or nothing."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, float):
        return value in (0.0, 1.0)
    return value == 0 if isinstance(value, int) else isinstance(value, str | list | tuple | dict) and not value


@functools.cache
def _pattern(ordinary: bool) -> list[tuple[re.Pattern[str], str]]:
    lists = ORDINARY if ordinary else IRRELEVANT
    return [(re.compile("|".join(map(translate, names))), reason) for reason, names in lists.items()]


def irrelevance(key: str, *, ordinary: bool = False) -> str | None:
    """Why a key cannot change what a step costs; None: it may. Args: ordinary: in a family that nobody knows."""
    return next((reason for names, reason in _pattern(ordinary) if names.fullmatch(key)), None)


def announced(raw: Mapping[str, Any], modelled: tuple[str, ...] = (), *, experts: bool = True) -> str | None:
    """What a parsed config.json announces that is not modelled, behind the key that does; None: nothing.

    Args:
        modelled: beginnings of keys that are.
        experts: whether the family has any.
    """
    for key, value in raw.items():
        if is_off(value) or not isinstance(key, str) or key.startswith(modelled):
            continue
        for feature, parts in _LISTS["unmodelled"].items():
            if any(part in key for part in parts):
                return f"{key} is {shown(value)}: {feature}"
        if not experts and key in _EXPERTS and value != 1:
            return f"{key} is {shown(value)}: experts in a family without any"
        if key == "attn_type_list" and isinstance(value, list) and set(map(str, value)) != {"1"}:
            return f"{key} is {shown(value)}: linear attention"
    return None


def keys_of(family: Family) -> set[str]:
    """Keys that a family's row names."""
    keys = {*family.defaults, *family.must_equal}
    keys |= {spelling for others in family.spellings.values() for spelling in others}
    if (running := family.running) is not None:
        keys |= {*running.must_equal}
        keys |= {setting.key for setting in running.computation.values() if isinstance(setting, Setting)}
    return keys


def unknown_keys(raw: Mapping[str, Any], read: Collection[str]) -> list[str]:
    """Keys of a known family's file that nothing reads and no list has, and whose value is no switch that is off."""
    known = {*read, "attn_type_list"}
    return [k for k, v in raw.items() if isinstance(k, str) and k not in known and not is_off(v) and not irrelevance(k)]
