"""What a field of a configuration is: its help, limits and default, stated once, for checks and for the command line."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

__all__ = ["Setting", "choices_of", "default_text", "hints", "range_text", "same_as", "setting", "setting_of"]

_KEY = "setting"


class Setting(NamedTuple):
    """What belongs to a field beside its type and default.

    Attributes:
        help: one sentence for the command line.
        low, high: smallest and largest value of a number, or of each number of several; None: no limit.
        above: the number must be more than `low`.
        unset: what no value stands for, in words, where the default is None.
        check: further test of the value in its type; raises InputError.
    """

    help: str = ""
    low: float | None = None
    high: float | None = None
    above: bool = False
    unset: str = ""
    check: Callable[[Any], None] | None = None


def setting(default: Any, help: str, *, low: float | None = None, high: float | None = None, **more: Any) -> Any:  # noqa: A002
    """A dataclass field that knows its help and limits; see `Setting`."""
    return dataclasses.field(default=default, metadata={_KEY: Setting(help, low, high, **more)})


def same_as(kind: type, name: str, help: str | None = None) -> Any:  # noqa: A002
    """The field of another configuration, with its default and limits, under another help if one is given."""
    field = kind.__dataclass_fields__[name]
    found = setting_of(field)
    return dataclasses.field(default=field.default, metadata={_KEY: found._replace(help=help or found.help)})


def setting_of(field: dataclasses.Field) -> Setting:
    """What a field says of itself; of a field that says nothing, nothing."""
    return field.metadata.get(_KEY, Setting())


@functools.cache
def hints(kind: type) -> dict[str, Any]:
    """Types of a configuration's fields, by name."""
    known = typing.get_type_hints(kind)
    return {field.name: known[field.name] for field in dataclasses.fields(kind)}


def choices_of(annotation: Any) -> tuple[str, ...]:
    """The texts that a field allows; none where its type does not name them."""
    if typing.get_origin(annotation) is Literal:
        return typing.get_args(annotation)
    inner = [choices_of(argument) for argument in typing.get_args(annotation)]
    return next((found for found in inner if found), ())


def range_text(found: Setting) -> str:
    """ "1 to 4,096", "more than 0 to 64", or nothing where there is no limit."""
    if found.low is None or found.high is None:
        return ""
    return f"{'more than ' if found.above else ''}{_number(found.low)} to {_number(found.high)}"


def default_text(field: dataclasses.Field) -> str:
    """A default as one would type it; of a field without one, what that stands for."""
    if field.default is None:
        return setting_of(field).unset
    parts = field.default if isinstance(field.default, tuple) else (field.default,)
    return ",".join(f"{part:g}" if isinstance(part, float) else str(part) for part in parts)


def _number(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() and abs(value) >= 10_000 else f"{value:g}"
