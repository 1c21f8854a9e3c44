"""Configurations as TOML: read, written completely, and named by a hash."""

from __future__ import annotations

import dataclasses
import hashlib
import tomllib
from pathlib import Path
from typing import Any

import tomli_w

from jaxspec.errors import InputError
from jaxspec.registries import table_of
from jaxspec.settings.base import Layer
from jaxspec.settings.coercion import as_path
from jaxspec.settings.fields import key_of, setting_of

__all__ = ["config_hash", "read_layer", "read_toml", "settings_digest", "to_toml"]


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
