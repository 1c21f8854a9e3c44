"""Configurations as TOML: read, written completely, and named by a hash."""

from __future__ import annotations

import dataclasses
import hashlib
import tomllib
from pathlib import Path
from typing import Any

import tomli_w

from jaxspec.errors import InputError
from jaxspec.settings.coercion import as_path

__all__ = ["config_hash", "read_toml", "to_toml"]


def read_toml(path: str | Path) -> dict[str, Any]:
    """Settings of a TOML file.

    Raises:
        InputError: missing, unreadable, or not TOML.
    """
    shown = repr(as_path("configuration", path))
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"configuration {shown} cannot be read ({error.strerror}); give a TOML file") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"configuration {shown} is not valid TOML (not UTF-8: {error.reason} at byte {error.start}); give a TOML file"
        ) from error
    except (ValueError, RecursionError) as error:  # not TOML, or numbers beyond what Python reads
        raise InputError(f"configuration {shown} is not valid TOML ({error}); fix the file") from error


def to_toml(config: Any) -> str:
    """A complete configuration, any dataclass of settings; those without a value are left out."""
    settings = {key: value for key, value in dataclasses.asdict(config).items() if value is not None}
    return tomli_w.dumps(settings)


def config_hash(config: Any) -> str:
    """Twelve hexadecimal digits that name a resolved configuration."""
    return hashlib.sha256(to_toml(config).encode()).hexdigest()[:12]
