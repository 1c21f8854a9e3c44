"""Bring a value that somebody gave to the type of its field, or say in one line why that is not possible."""

from __future__ import annotations

import dataclasses
import math
import numbers
import operator
import os
import re
import sys
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jaxspec.errors import InputError, hint
from jaxspec.registries import name_of
from jaxspec.settings.fields import Setting, choices_of, key_of, range_text

__all__ = [
    "as_path",
    "as_text",
    "coerce",
    "named",
    "places_of_lists",
    "plain_number",
    "refuse_traced",
    "short_number",
    "shown",
]

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
        name: path of the field, for messages, as in "axes.workload.batch".
        annotation: str, bool, int, float, a Literal of texts, a tuple or list of one of them, a table of them by name (dict),
            another configuration, or a union of these or None: of two forms, a table is the configuration, and a whole
            number for a text that is one.
        given: limits and a further check; those of a table or list hold for each number of it.
    Raises:
        InputError: the value has another type, is not one of the allowed texts, or lies outside the limits; NaN and
            infinities are outside everywhere. Or it is traced by JAX.
    """
    refuse_traced(name, value)
    coerced = _coerce(name, value, annotation, given)
    if given.check is not None and coerced is not None:
        given.check(coerced)
    return coerced


def refuse_traced(name: str, value: Any) -> None:
    """Raises InputError where a value, or a number within an object, is traced by JAX."""
    jax = sys.modules.get("jax")
    if jax is None or isinstance(value, Iterator):
        return
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value)):
        raise InputError(
            f"{name} is traced by grad, vmap or jit, which only js.price allows: "
            "js.price(js.Case(device, architecture, js.Workload(batch, context_tokens)), js.chain_plan(draft_length))"
        )


def _coerce(name: str, value: Any, annotation: Any, given: Setting) -> Any:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        if {int, str} <= set(arguments):
            return _number_or_text(name, value, given)
        return _coerce(name, value, _form_for(value, arguments), given)
    if dataclasses.is_dataclass(annotation):
        return _nested(name, value, annotation)
    if choices_of(annotation):
        value = named(value, given)
        return _choice(name, value, choices_of(annotation))
    if origin is tuple:
        return _several(name, value, arguments[0], given)
    if origin is list:
        return _list(name, value, arguments[0], given)
    if annotation is dict or origin is dict:
        return _table(name, value, arguments[1] if arguments else Any, given)
    if annotation is Any:
        return value
    if annotation is str:
        text = as_text(name, named(value, given))
        if not text and given.check is None:  # a check of its own knows better what is allowed
            raise InputError(f"{name} is ''; {given.help if isinstance(given.help, str) else 'it must not be empty'}")
        return given.known(text)
    if annotation is bool:
        if isinstance(value, bool):
            return value
        raise InputError(f"{name} is {shown(value)}; it must be true or false")
    number = (short_number(value) if annotation is int else None) or _number(value, annotation)
    if number is None:
        what = _kind_of_number(annotation, given)
        several = annotation is int and not isinstance(value, str) and len(_items(value)) > 1
        places = f": lists go to {places_of_lists(name, given)}" if several else ""
        raise InputError(f"{name} is {shown(value)}; it must be {what}{places}")
    return _limited(name, number, given)


def places_of_lists(name: str, given: Setting, *, before: str = "") -> str:
    """What takes several values where one setting takes a single number. Args: before: names of settings, as "--"."""
    if given.lists:
        return f"{before}{given.lists}"
    return "jaxspec predict, advise or sweep" if name in ("batch", "context") else "jaxspec sweep"


def named(value: Any, given: Setting) -> Any:
    """The name of an object of the user's own, or of its table; other values as they are."""
    is_object = isinstance(value, Mapping) or dataclasses.is_dataclass(value)
    return name_of(given.objects, value) if given.objects and is_object else value


def _number_or_text(name: str, value: Any, given: Setting) -> int | str:
    """A whole number, be it as a text, or else a text."""
    if isinstance(value, (str, os.PathLike)):
        text = as_text(name, value)
        number = _number(text, int, text=True)
        return _coerce(name, text, str, given) if number is None else _limited(name, number, given)
    return _coerce(name, value, int, given)


def _form_for(value: Any, forms: tuple[Any, ...]) -> Any:
    """The one of several forms that a value is meant to have."""
    given = [form for form in forms if form is not type(None)]
    tables = [form for form in given if dataclasses.is_dataclass(form)]
    others = [form for form in given if form not in tables]
    is_table = isinstance(value, Mapping) or dataclasses.is_dataclass(value)
    return next(iter(tables if (tables and is_table) or not others else others))


def _nested(name: str, value: Any, kind: Any) -> Any:
    """A configuration within another, from a table; its messages begin with its path."""
    if isinstance(value, kind):
        return value
    fields = {key_of(field): field for field in dataclasses.fields(kind)}
    missing = dataclasses.MISSING
    needed = {key for key, field in fields.items() if (field.default, field.default_factory) == (missing, missing)}
    if not isinstance(value, Mapping):
        raise InputError(f"{name} is {shown(value)}; {kind.form}")
    if unknown := [key for key in value if key not in fields]:
        raise InputError(f"{name} has {shown(unknown[0])}, which is not known{hint(unknown[0], fields)}; {kind.form}")
    if lacking := [key for key in fields if key in needed and key not in value]:
        raise InputError(f"{name} has no {' and no '.join(lacking)}; {kind.form}")
    try:
        return kind(**{fields[key].name: item for key, item in value.items()})
    except InputError as error:
        raise InputError(f"{name}.{error}") from error


def _table(name: str, value: Any, inner: Any, given: Setting) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{name} is {shown(value)}; it must be a table of names and values")
    return {as_text(name, key): _coerce(f"{name}.{key}", item, inner, given) for key, item in value.items()}


def _list(name: str, value: Any, inner: Any, given: Setting) -> list[Any]:
    """Values in their order, repeated ones too."""
    items = None if isinstance(value, str) else _items(value)
    if items is None or not isinstance(value, Iterable):
        raise InputError(f"{name} is {shown(value)}; {given.form or 'give a list'}")
    if not items:
        raise InputError(f"{name} is empty; give at least one value")
    return [_coerce(name, item, inner, given) for item in items]


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
    items = _items(named(value, given))
    if not items:
        raise refusal
    if inner is str:
        items = [named(item, given) for item in items]
        if not all(isinstance(item, (str, os.PathLike)) and os.fspath(item) for item in items):
            raise refusal
        return tuple(dict.fromkeys(given.known(as_text(name, item)) for item in items))
    if isinstance(value, str) and (split := [item for item in items if re.fullmatch(r"0\d+", item)]):
        raise InputError(f"{name} is {shown(value)}, with {split[0]}; write a number without commas, as 1024 or 1k")
    short = [short_number(item) if inner is int else None for item in items]
    numbers = [_number(item, inner, text=True) if n is None else n for item, n in zip(items, short)]
    if any(number is None for number in numbers):
        raise refusal
    checked = [_limited(name, number, given, several=True) for number in numbers]
    return tuple(sorted(set(checked))) if inner is int else tuple(checked)


def _items(value: Any) -> list[Any]:
    """The items of a value that stands for several; empty where it cannot."""
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


def short_number(value: Any) -> int | None:
    """A whole number as people write those of tokens: "128k" is 128 times 1,024, "1m" 1,024 times that; None: another form."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([km])", value.strip().lower()) if isinstance(value, str) else None
    if match is None:
        return None
    number = float(match[1]) * {"k": 1024, "m": 1024**2}[match[2]]
    return int(number) if number.is_integer() else None


def _number(value: Any, kind: type, *, text: bool = False) -> Any:
    """An int or a float, or None where the value is neither."""
    if isinstance(value, str) and text:
        try:
            return kind(value)
        except ValueError:
            return None
    number = plain_number(value)
    if number is None or (kind is int and isinstance(number, float) and not number.is_integer()):  # 64 / 2 is 32.0
        return None
    try:
        return kind(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _kind_of_number(kind: type, given: Setting) -> str:
    """What a value must be, where it is no number at all."""
    return _any_size(given) if given.sizes is not None else "one whole number" if kind is int else "one number"


def _any_size(given: Setting) -> str:
    low, high = given.sizes or (0.0, math.inf)
    return f"a finite number, 0 or of size {low:g} to {high:g}"


def _limited(name: str, number: Any, given: Setting, *, several: bool = False) -> Any:
    # Comparisons work with integers of any size, and are false for NaN.
    if given.sizes is not None and not (number == 0 or given.sizes[0] <= abs(number) <= given.sizes[1]):
        raise InputError(f"{name} is {shown(number)}; it must be {_any_size(given)}")
    low = -math.inf if given.low is None else given.low
    high = math.inf if given.high is None else given.high
    within = low < number <= high if given.above else low <= number <= high
    if not within or (isinstance(number, float) and not math.isfinite(number)):
        several_numbers = "allowed are numbers from" if several and isinstance(number, float) else "allowed is"
        words = f"{several_numbers} {range_text(given)}" if range_text(given) else "it must be a finite number"
        words += f"; {given.form}" if given.form else ""
        raise InputError(f"{name} is {shown(number)}; {words}")
    return number
