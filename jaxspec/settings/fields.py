"""Help, limits and default of a configuration's fields, stated once for checks and for the command line."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

from jaxspec.partial_files import read_toml_beside

__all__ = [
    "Among",
    "Setting",
    "add_field",
    "as_typed",
    "choices_of",
    "default_text",
    "derived",
    "explained",
    "fields_of",
    "flag_of",
    "has_flag",
    "help_of",
    "hints",
    "key_of",
    "names_of",
    "range_text",
    "same_as",
    "setting",
    "setting_of",
    "state",
    "takes_several",
    "takes_text",
]

_KEY = "setting"


class Setting(NamedTuple):
    """What belongs to a field beside its type and default.

    Attributes:
        help: one sentence for the command line, or a function that makes it.
        low, high: smallest and largest value of a number, or of each number of several; None: no limit.
        above: the number must be more than `low`.
        unset: what no value stands for, in words, where the default is None.
        check: further test of the value in its type; raises InputError.
        form: for values of another form than the type's, or of another unit, what to give instead.
        sizes: smallest and largest absolute value of a number that is not 0; TOML's integers have no bound.
        key: name in a file, where it cannot be that of the field.
        quick: value under `--quick`; None: the default.
        flag: on the command line, where it cannot be made of the field's name.
        lists: of one number, the setting that takes several.
        known: from a text as somebody writes it to the name that is meant; what it does not understand, comes back.
        names: of a text that may be something else too, as a file: what the tab key offers, or a function that finds it.
        objects: kind of registry ("device", ...) whose objects, and their tables, may stand for their names.
    """

    help: str | Callable[[], str] = ""
    low: float | None = None
    high: float | None = None
    above: bool = False
    unset: str = ""
    check: Callable[[Any], None] | None = None
    form: str = ""
    sizes: tuple[float, float] | None = None
    key: str = ""
    quick: Any = None
    flag: str = ""
    lists: str = ""
    names: tuple[str, ...] | Callable[[], tuple[str, ...]] = ()
    objects: str = ""
    known: Callable[[str], str] = str


class Among(NamedTuple):
    """Texts that a field allows, of a registry that may grow: `Annotated[str, Among(function)]`."""

    names: Callable[[], Iterable[str]]

    def __repr__(self) -> str:
        return f"one of {', '.join(self.names())}"


def fields_of(kind: Any) -> tuple[dataclasses.Field, ...]:
    """Fields of a configuration or of its class, those of registered members too."""
    complete = getattr(kind, "complete", None)
    if complete is not None:
        complete()
    return dataclasses.fields(kind)


def add_field(kind: type, name: str, annotation: type, field: Any) -> None:
    """Give a class of frozen settings one more field, the last one, and all classes that are derived of it."""
    setattr(kind, name, field.default)  # of settings that were made before
    kind.__annotations__[name] = annotation
    for one in [kind, *derived(kind)]:
        fields = [(old.name, old.type, old) for old in dataclasses.fields(one)]
        made = dataclasses.make_dataclass(
            one.__name__, [*fields, (name, annotation, field)], bases=kind.__bases__, frozen=True
        )
        for member in ("__init__", "__repr__", "__eq__", "__hash__", "__match_args__", "__dataclass_fields__"):
            setattr(one, member, made.__dict__[member])
    hints.cache_clear()


def derived(kind: type) -> list[type]:
    """All classes that are derived of one."""
    return list(dict.fromkeys(inner for one in kind.__subclasses__() for inner in (one, *derived(one))))


def setting(
    default: Any,
    help: str | Callable[[], str] = "",  # noqa: A002
    *,
    low: float | None = None,
    high: float | None = None,
    **more: Any,
) -> Any:
    """A dataclass field that knows its help and limits; see `Setting`, and `state`, by which a file may give them.

    Args:
        default: its value; a function that makes it, where it can be changed (a table); `dataclasses.MISSING`: none.
    """
    metadata = {_KEY: Setting(help, low, high, **more)}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def same_as(kind: type, name: str, help: str | None = None, **other: Any) -> Any:  # noqa: A002
    """The field of another configuration, with its default and limits, under another help if one is given.

    Args:
        other: what else differs: the default, or parts of `Setting`.
    """
    field = kind.__dataclass_fields__[name]
    base, default = setting_of(field), other.pop("default", field.default)
    return dataclasses.field(default=default, metadata={_KEY: base._replace(help=help or base.help, **other)})


def state(kind: type, module: str) -> None:
    """Give fields of a class, before it is a dataclass, the parts of `Setting` that a TOML file has for them.

    Args:
        module: beside which `settings.toml` has a table for each field, `[Class.field]`.
    Raises:
        KeyError: it names a field that the class does not have.
    """
    for name, parts in read_toml_beside(module, "settings.toml").get(kind.__name__, {}).items():
        field = vars(kind)[name]
        field.metadata = {_KEY: setting_of(field)._replace(**parts)}


def setting_of(field: dataclasses.Field) -> Setting:
    """Help and limits of a field; those of a field without any are empty."""
    return field.metadata.get(_KEY, Setting())


def key_of(field: dataclasses.Field) -> str:
    """Name of a field in files and messages."""
    return setting_of(field).key or field.name


def flag_of(field: dataclasses.Field) -> str:
    """Name of a field on the command line."""
    return setting_of(field).flag or f"--{field.name.replace('_', '-')}"


def has_flag(annotation: Any) -> bool:
    """Whether a field can be given on a command line: a table cannot."""
    return (
        annotation is not dict
        and typing.get_origin(annotation) is not dict
        and not dataclasses.is_dataclass(annotation)
    )


@functools.cache
def hints(kind: type) -> dict[str, Any]:
    """Types of a configuration's fields, by name."""
    known = typing.get_type_hints(kind, include_extras=True)
    return {field.name: known[field.name] for field in dataclasses.fields(kind)}


def choices_of(annotation: Any) -> tuple[str, ...]:
    """The texts that a field allows; none where its type does not name them."""
    if typing.get_origin(annotation) is Literal:
        return typing.get_args(annotation)
    if among := [one for one in getattr(annotation, "__metadata__", ()) if isinstance(one, Among)]:
        return tuple(among[0].names())
    inner = [choices_of(argument) for argument in typing.get_args(annotation)]
    return next((choices for choices in inner if choices), ())


def names_of(field: dataclasses.Field) -> tuple[str, ...]:
    """The names that the tab key offers for a text which may be something else too."""
    names = setting_of(field).names
    return names() if callable(names) else names


def takes_text(annotation: Any) -> bool:
    """Whether a field takes texts: one, several, or one or nothing."""
    return annotation is str or any(map(takes_text, typing.get_args(annotation)))


def takes_several(annotation: Any) -> bool:
    """Whether a field takes several values, separated by commas."""
    return typing.get_origin(annotation) is tuple or any(map(takes_several, typing.get_args(annotation)))


def range_text(limits: Setting) -> str:
    """ "1 to 4,096", "more than 0 to 64", or nothing where there is no limit."""
    if limits.low is None or limits.high is None:
        return ""
    return f"{'more than ' if limits.above else ''}{_number(limits.low)} to {_number(limits.high)}"


def default_text(field: dataclasses.Field) -> str:
    """A default as one would type it; of a field without one, what that stands for."""
    if field.default is None:
        return setting_of(field).unset
    if field.default is dataclasses.MISSING:  # it must be given, or is a table
        return ""
    return as_typed(field.default)


def as_typed(value: Any) -> str:
    """A value as one would type it: several are separated by commas."""
    parts = value if isinstance(value, tuple) else (value,)
    return ",".join(f"{part:g}" if isinstance(part, float) else str(part) for part in parts)


def explained(field: dataclasses.Field, annotation: Any) -> str:
    """Help of a field with what it allows and its default, as `--help` and docstrings have it."""
    facts = [", ".join(choices_of(annotation)), range_text(setting_of(field))]
    if default := default_text(field):
        facts.append(f"default: {default}")
    known = "; ".join(fact for fact in facts if fact)
    words = help_of(field)
    return f"{words} [{known}]" if known else words


def help_of(field: dataclasses.Field) -> str:
    """Help of a field alone."""
    words = setting_of(field).help
    return words() if callable(words) else words


def _number(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() and abs(value) >= 10_000 else f"{value:g}"
