"""A value that somebody gave, in the type of its field, or one line that says why it cannot be."""

from __future__ import annotations

import math
import numbers
import operator
import os
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from jaxspec.errors import InputError
from jaxspec.settings.fields import Setting, choices_of, range_text
from jaxspec.suggestions import hint

__all__ = ["as_path", "as_text", "coerce", "plain_number", "shown"]

#: Longest value that a message repeats.
_SHOWN = 60


def shown(value: Any) -> str:
    """A value for a message, on one line and not long."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print integers of thousands of digits
        return "a number of many digits"
    text = " ".join(text.removesuffix(".0").split()) if isinstance(value, float) else " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def coerce(name: str, value: Any, annotation: Any, given: Setting = Setting()) -> Any:
    """The value in the field's type.

    Texts may come as paths, one name instead of several, several separated by commas, and numbers from NumPy or JAX.

    Args:
        name: of the field, for messages.
        annotation: str, int, float, a Literal of texts, a tuple of one of them, dict, or any of them or None.
        given: limits and a further check.
    Raises:
        InputError: the value has another type, is not one of the allowed texts, or lies outside the limits; NaN and
            infinities are outside everywhere.
    """
    found = _coerce(name, value, annotation, given)
    if given.check is not None and found is not None:
        given.check(found)
    return found


def _coerce(name: str, value: Any, annotation: Any, given: Setting) -> Any:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        inner = next(argument for argument in arguments if argument is not type(None))
        return None if value is None else _coerce(name, value, inner, given)
    if choices := choices_of(annotation):
        return _choice(name, value, choices)
    if origin is tuple:
        return _several(name, value, arguments[0], given)
    if annotation is dict or origin is dict:
        if not isinstance(value, Mapping):
            raise InputError(f"{name} is {shown(value)}; it must be a table of names and values")
        return dict(value)
    if annotation is str:
        text = as_text(name, value)
        if not text and given.check is None:  # a check of its own knows better what is allowed
            raise InputError(f"{name} is ''; {given.help or 'it must not be empty'}")
        return text
    number = _number(value, annotation)
    if number is None:
        raise InputError(f"{name} is {shown(value)}; it must be of type {annotation.__name__}")
    return _limited(name, number, given)


def as_text(name: str, value: Any) -> str:
    """A text or a path as a text.

    Raises:
        InputError: another type, or characters that no name of a file can have.
    """
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        raise InputError(f"{name} is {shown(value)}; it must be of type str")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"{name} is {shown(value)}; it must be text in UTF-8: rename the file") from error
    if any(ord(character) < 32 for character in value):
        raise InputError(f"{name} is {shown(value)}; it must be text on one line, without control characters")
    return str(value)


def as_path(name: str, value: Any) -> str:
    """A path that is not empty. Raises InputError."""
    path = as_text(name, value)
    if not path:
        raise InputError(f"{name} is ''; give the path of a file or folder")
    return path


def _choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{name} is {shown(value)}{hint(value, choices)}")
    return str(value)


def _several(name: str, value: Any, inner: Any, given: Setting) -> tuple:
    """Texts in the order given, each once; whole numbers rising, each once; other numbers as they are."""
    kind = {str: "names", int: "whole numbers", float: "numbers"}[inner]
    limits = f" from {range_text(given)}" if inner is float and range_text(given) else ""
    refusal = InputError(f"{name} is {shown(value)}; give one or more {kind}{limits}, separated by commas")
    items = _items(value)
    if not items:
        raise refusal
    if inner is str:
        if not all(isinstance(item, (str, os.PathLike)) and os.fspath(item) for item in items):
            raise refusal
        return tuple(dict.fromkeys(as_text(name, item) for item in items))
    found = [_number(item, inner, text=isinstance(value, str)) for item in items]
    if any(number is None for number in found):
        raise refusal
    checked = [_limited(name, number, given, several=True) for number in found]
    return tuple(sorted(set(checked))) if inner is int else tuple(checked)


def _items(value: Any) -> list[Any]:
    """What a value that stands for several holds; nothing where it cannot."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    if hasattr(value, "ndim") and hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (os.PathLike, numbers.Number)):
        return [value]
    if isinstance(value, (bytes, bytearray, Mapping, set, frozenset)) or not isinstance(value, Iterable):
        return []
    return list(value)


def plain_number(value: Any) -> int | float | None:
    """A number, also one of NumPy or JAX, as an int or a float; None where the value is not one."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    if isinstance(value, numbers.Integral):
        return operator.index(value)
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _number(value: Any, kind: type, *, text: bool = False) -> Any:
    """An int or a float, or None where the value is neither."""
    if isinstance(value, str) and text:
        try:
            return kind(value)
        except ValueError:
            return None
    number = plain_number(value)
    if number is None or (kind is int and not isinstance(number, int)):
        return None
    try:
        return kind(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _limited(name: str, number: Any, given: Setting, *, several: bool = False) -> Any:
    low = -math.inf if given.low is None else given.low
    high = math.inf if given.high is None else given.high
    within = low < number <= high if given.above else low <= number <= high
    if not within or (isinstance(number, float) and not math.isfinite(number)):
        several_numbers = "allowed are numbers from" if several and isinstance(number, float) else "allowed is"
        words = f"{several_numbers} {range_text(given)}" if range_text(given) else "it must be a finite number"
        raise InputError(f"{name} is {shown(number)}; {words}")
    return number
