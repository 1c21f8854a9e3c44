"""A configuration: a frozen dataclass whose fields are checked however it is made, and which settings fit together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Any, ClassVar, NamedTuple, TypeVar

from jaxspec.errors import InputError
from jaxspec.settings.coercion import coerce, shown
from jaxspec.settings.fields import hints, setting_of
from jaxspec.suggestions import hint

__all__ = ["ConfigType", "Settings", "Unused", "build_config", "expect", "notes", "refuse_unused"]


class Unused(NamedTuple):
    """Settings that nothing would read.

    Attributes:
        names: of those settings.
        reason: of a configuration, why, in words; None where they are read.
        refused: whether giving one is bad input; otherwise the user is told.
    """

    names: tuple[str, ...]
    reason: Callable[[Any], str | None]
    refused: bool = True


@dataclasses.dataclass(frozen=True)
class Settings:
    """Base of all configurations: values are brought to their types and checked at construction.

    Raises:
        InputError: a value of the wrong type or out of its limits; settings that exclude one another.
    """

    #: Which settings go unread, and when.
    unused: ClassVar[tuple[Unused, ...]] = ()

    def __post_init__(self):
        types = hints(type(self))
        for field in dataclasses.fields(self):
            value = coerce(field.name, getattr(self, field.name), types[field.name], setting_of(field))
            object.__setattr__(self, field.name, value)
        refuse_unused(self)


#: One of the configurations.
ConfigType = TypeVar("ConfigType", bound=Settings)


def _changed(config: Settings) -> list[str]:
    """Names of the settings that differ from their defaults."""
    return [field.name for field in dataclasses.fields(config) if getattr(config, field.name) != field.default]


def _unread(config: Settings, given: Collection[str] | None, *, refused: bool) -> list[str]:
    names = _changed(config) if given is None else given
    found = []
    for rule in config.unused:
        unread = [name for name in rule.names if name in names]
        if rule.refused == refused and unread and (reason := rule.reason(config)) is not None:
            found.append(f"{', '.join(unread)} would have no effect: {reason}")
    return found


def refuse_unused(config: Settings, given: Collection[str] | None = None) -> None:
    """Refuse settings that would have no effect.

    Args:
        given: names of the settings that somebody gave; None: those that differ from their defaults.
    Raises:
        InputError: there is one.
    """
    for line in _unread(config, given, refused=True):
        raise InputError(f"{line}; leave one of them out")


def notes(config: Settings, given: Collection[str] | None = None) -> list[str]:
    """What a user should know about settings that have no effect, and are no mistake; one line each."""
    return _unread(config, given, refused=False)


def expect(kind: type[ConfigType], config: Any) -> ConfigType:
    """The configuration, if it is of this kind.

    Raises:
        InputError: it is something else.
    """
    if not isinstance(config, kind):
        raise InputError(f"{kind.__name__} is needed and {type(config).__name__} came; make one: {kind.__name__}(...)")
    return config


def build_config(kind: type[ConfigType], *layers: dict[str, Any], given: Collection[str] = ()) -> ConfigType:
    """A configuration from layers of settings, later ones winning; keys with the value None are not set.

    Args:
        given: names that were given on purpose, as flags are, even if they are equal to the default.
    Raises:
        InputError: an unknown key, a wrong type, a value out of range, settings that exclude one another.
    """
    known = hints(kind)
    settings: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            if key not in known:
                raise InputError(f"unknown setting {shown(key)}{hint(key, sorted(known), list_all=False)}")
            if value is not None:
                settings[key] = value
    missing = [f.name for f in dataclasses.fields(kind) if f.name not in settings and _required(f)]
    if missing:
        raise InputError(f"{', '.join(missing)} must be given; nothing stands for it")
    config = kind(**settings)
    if given:
        refuse_unused(config, given)
    return config


def _required(field: dataclasses.Field) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
