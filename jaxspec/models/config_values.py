"""Values of a parsed config.json, checked one by one: each error names the key, what came and what is allowed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["flag", "integer", "positive", "positives"]


def integer(values: Mapping[str, Any], key: str) -> int:
    """An integer of at least 1. Raises ValueError."""
    value = values.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{key} is {value!r}; it must be an integer of at least 1")
    return value


def positive(values: Mapping[str, Any], key: str) -> float:
    """A finite number above 0. Raises ValueError."""
    value: Any = values.get(key)
    if not _is_positive(value):
        raise ValueError(f"{key} is {value!r}; it must be a finite number above 0")
    return float(value)


def positives(values: Mapping[str, Any], key: str, count: int) -> tuple[float, ...]:
    """A list of so many finite numbers above 0. Raises ValueError."""
    value: Any = values.get(key)
    if not isinstance(value, list) or len(value) != count or not all(map(_is_positive, value)):
        raise ValueError(f"{key} is {value!r}; it must be a list of {count} finite numbers above 0")
    return tuple(map(float, value))


def flag(values: Mapping[str, Any], key: str) -> bool:
    """True or false. Raises ValueError."""
    value = values.get(key)
    if not isinstance(value, bool):
        raise ValueError(f"{key} is {value!r}; it must be true or false")
    return value


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= sys.float_info.max
