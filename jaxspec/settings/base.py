"""A configuration: a frozen dataclass whose fields are checked however it is made, and which settings fit together."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import tomli_w

from jaxspec.errors import InputError, hint
from jaxspec.registries import table_of
from jaxspec.settings.coercion import as_path, coerce, named, refuse_traced, shown
from jaxspec.settings.fields import as_typed, fields_of, hints, key_of, setting_of, state

__all__ = [
    "ConfigType",
    "Layer",
    "Settings",
    "Unused",
    "build_config",
    "config_hash",
    "expect",
    "layered_config",
    "notes",
    "quick_help",
    "quick_settings",
    "read_layer",
    "read_toml",
    "refuse_unused",
    "settings_digest",
    "to_toml",
]


class Unused(NamedTuple):
    """Settings that nothing would read.

    Attributes:
        names: of those settings.
        when: whether a configuration does not read them, or why, in words; None and False: it does.
        why: in words, where `when` does not say.
        refused: whether giving one is bad input; otherwise a note is printed.
    """

    names: tuple[str, ...]
    when: Callable[[Any], Any]
    why: str = ""
    refused: bool = True

    def reason(self, config: Any) -> str | None:
        """Why a configuration does not read them; None where it does."""
        unread = self.when(config)
        return (self.why or str(unread)) if unread else None


class Layer(NamedTuple):
    """Settings by key, and the file that they come from, which messages about them name."""

    values: Mapping[str, Any]
    source: str = ""


@dataclasses.dataclass(frozen=True)
class Settings:
    """Base of all configurations: values are brought to their types and checked at construction.

    Raises:
        InputError: a value of the wrong type or out of its limits; settings that exclude one another.
    """

    #: Which settings go unread, and when; functions make rules of what is registered.
    unused: ClassVar[tuple[Unused | Callable[[], tuple[Unused, ...]], ...]] = ()
    #: Values that some fields have by others where nobody gives one, in place of their defaults.
    usual: ClassVar[Mapping[str, Any]] = {}
    #: Values under `--quick` in place of those of the fields, by name: of a study that takes longer on as much text as others.
    quick: ClassVar[Mapping[str, Any]] = {}
    #: Of a configuration within another: what to give in its place, for messages.
    form: ClassVar[str] = "give a table of settings"
    #: Group of the settings that a class adds, in `--help-all`.
    heading: ClassVar[str] = "Further settings"

    def __init_subclass__(cls, stated_beside: str = "", **keywords: Any) -> None:
        """Args: stated_beside: a module, with help and limits of the fields in `settings.toml` beside it; "": there is none."""
        super().__init_subclass__(**keywords)
        if stated_beside:
            state(cls, stated_beside)

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """With all fields, those of registered members too."""
        cls.complete()
        return super().__new__(cls)

    @classmethod
    def complete(cls) -> None:
        """Read the registries that add fields."""

    def settle(self, name: str, value: Any) -> None:
        """Give a field, before it is checked, the value that it has by others unless somebody gave one."""
        object.__setattr__(self, "usual", {**self.usual, name: value})
        if getattr(self, name) is None:
            object.__setattr__(self, name, value)

    def __post_init__(self):
        types = hints(type(self))
        for field in dataclasses.fields(self):
            value = coerce(key_of(field), getattr(self, field.name), types[field.name], setting_of(field))
            object.__setattr__(self, field.name, value)
        refuse_unused(self)


#: One of the configurations.
ConfigType = TypeVar("ConfigType", bound=Settings)


def _changed(config: Settings) -> list[str]:
    """Names of the settings that differ from their defaults, and from what `--quick` sets: nobody asked for either."""
    fields = [(field, getattr(config, field.name)) for field in dataclasses.fields(config)]
    usual = lambda field: (config.usual.get(field.name, field.default), _quick(type(config), field))
    return [field.name for field, value in fields if value not in usual(field)]


def _unread(config: Settings, given: Collection[str] | None, *, refused: bool) -> list[str]:
    names = _changed(config) if given is None else given
    lines = []
    rules = (rule for part in config.unused for rule in ((part,) if isinstance(part, Unused) else part()))
    for rule in rules:
        unread = [name for name in rule.names if name in names]
        if rule.refused == refused and unread and (reason := rule.reason(config)) is not None:
            lines.append(f"{', '.join(unread)} would have no effect: {reason}")
    return lines


def _quick(kind: type[Settings], field: dataclasses.Field) -> Any:
    return kind.quick.get(field.name, setting_of(field).quick)


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
    """Lines about settings that have no effect and are not mistakes."""
    return _unread(config, given, refused=False)


def expect(kind: type[ConfigType], config: Any) -> ConfigType:
    """The configuration, if it is of this kind.

    Raises:
        InputError: it is something else.
    """
    if not isinstance(config, kind):
        raise InputError(f"{kind.__name__} is needed and {type(config).__name__} came; make one: {kind.__name__}(...)")
    return config


def quick_settings(kind: type[Settings]) -> dict[str, Any]:
    """Settings that `--quick` changes: build_config(TuneConfig, quick_settings(TuneConfig), ...)."""
    quick = {key_of(field): _quick(kind, field) for field in fields_of(kind)}
    return {key: value for key, value in quick.items() if value is not None}


def quick_help(kind: type[Settings]) -> str:
    """What `--quick` is, with what it changes; "" where it changes nothing."""
    changed = ", ".join(f"{name} {as_typed(value)}" for name, value in quick_settings(kind).items())
    return f"Smaller run, with wider error bars: {changed}." if changed else ""


def build_config(kind: type[ConfigType], *layers: Mapping[str, Any] | Layer, given: Collection[str] = ()) -> ConfigType:
    """A configuration from layers of settings, later ones winning; keys with the value None are not set.

    Args:
        given: names that were given on purpose, as flags are, even if they are equal to the default.
    Raises:
        InputError: an unknown key, a wrong type, a value out of range, settings that exclude one another. What is wrong with
            the settings of a file names the file.
    """
    layers = tuple(layer if isinstance(layer, Layer) else Layer(layer) for layer in layers)
    fields = {key_of(field): field for field in fields_of(kind)}
    for values, source in layers:
        with _named(source):
            for key in values.keys() & fields.keys():
                refuse_traced(key, values[key])
                named(values[key], setting_of(fields[key]))  # a scheme of the user's own brings fields along
    fields = {key_of(field): field for field in fields_of(kind)}
    types = hints(kind)
    settings: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for values, source in layers:
        with _named(source):
            for key, value in values.items():
                if key not in fields:
                    raise InputError(f"unknown setting {shown(key)}{hint(key, sorted(fields), list_all=False)}")
                if value is not None:
                    field = fields[key]
                    settings[field.name] = coerce(key, value, types[field.name], setting_of(field))
                    sources[field.name] = source
    missing = [key for key, field in fields.items() if field.name not in settings and _required(field)]
    if missing:
        raise InputError(f"{', '.join(missing)} must be given: no default exists; see --help")
    with _named(next(iter(sources.values())) if len(set(sources.values())) == 1 else ""):
        config = kind(**settings)
    if given:
        refuse_unused(config, given)
    return config


def layered_config(
    kind: type[ConfigType], given: Mapping[str, Any], *layers: Mapping[str, Any] | Layer, quick: bool = False
) -> ConfigType:
    """The configuration of a command: what was given over layers, as a file, over (quick) defaults.

    Args:
        given: setting -> value; None: not given. A given setting that would have no effect is refused.
        quick: begin with the settings of `--quick`.
    Raises:
        InputError: see `build_config`.
    """
    names = [name for name, value in given.items() if value is not None]
    return build_config(kind, quick_settings(kind) if quick else {}, *layers, given, given=names)


@contextlib.contextmanager
def _named(source: str) -> Iterator[None]:
    """Bad input within the block names the file that it comes from."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{source}: {error}" if source else str(error)) from error


def _required(field: dataclasses.Field) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


# Configurations as TOML: read, written completely, and named by a hash.


def read_toml(path: str | Path) -> dict[str, Any]:
    """Settings of a TOML file.

    Raises:
        InputError: missing, unreadable, or not TOML.
    """
    shown = repr(as_path("configuration", path))
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"configuration {shown} cannot be read ({error.strerror}); give a TOML file") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"configuration {shown} is not valid TOML (not UTF-8: {error.reason} at byte {error.start}); give a TOML file"
        ) from error
    except (ValueError, RecursionError) as error:  # not TOML, or numbers beyond what Python reads
        raise InputError(f"configuration {shown} is not valid TOML ({error}); fix the file") from error


def read_layer(path: str | Path) -> Layer:
    """Settings of a TOML file, for `build_config`.

    Raises:
        InputError: missing, unreadable, or not TOML.
    """
    return Layer(read_toml(path), str(path))


def to_toml(config: Any) -> str:
    """A complete configuration, any dataclass of settings; those without a value are left out.

    Every table keeps the order of its keys, which is that of a sweep's axes and so of its points.
    """
    settings = _plain(config)
    mixed = {key: value for key, value in settings.items() if isinstance(value, dict) and _is_mixed(value)}
    text = tomli_w.dumps({key: value for key, value in settings.items() if key not in mixed})
    return text + "".join(_in_order(key, table) for key, table in mixed.items())


def _is_mixed(table: dict[str, Any]) -> bool:
    """Whether tables stand among values whose order counts, which TOML allows in one line only."""
    return any(isinstance(value, dict) for value in table.values())


def _in_order(name: str, table: dict[str, Any]) -> str:
    lines = [
        f"{_entry(key, value)}\n" if isinstance(value, dict) else tomli_w.dumps({key: value})
        for key, value in table.items()
    ]
    return f"\n{tomli_w.dumps({name: {}})}{''.join(lines)}"


def _entry(key: str, value: Any) -> str:
    """A key and its value on one line, tables within tables too."""
    if not isinstance(value, dict):
        return tomli_w.dumps({key: value}).strip()
    name = tomli_w.dumps({key: 0}).strip().removesuffix(" = 0")
    return f"{name} = {{ {', '.join(_entry(inner, item) for inner, item in value.items())} }}"


def _plain(value: Any) -> Any:
    """Dataclasses as tables by the names that their fields have in files."""
    if dataclasses.is_dataclass(value):
        table = {key_of(field): _whole(getattr(value, field.name), field) for field in dataclasses.fields(value)}
        return {key: _plain(item) for key, item in table.items() if item is not None}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _whole(value: Any, field: dataclasses.Field) -> Any:
    """A setting in which names that this program alone knows are the tables of what they stand for."""
    kind = setting_of(field).objects
    if not kind or value is None:
        return value
    return table_of(kind, value) if isinstance(value, str) else [table_of(kind, name) for name in value]


def settings_digest(text: bytes) -> str:
    """SHA-256 of a file of settings."""
    return hashlib.sha256(text).hexdigest()


def config_hash(config: Any) -> str:
    """Twelve hexadecimal digits that name a resolved configuration."""
    return settings_digest(to_toml(config).encode())[:12]
