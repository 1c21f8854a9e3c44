"""Catalog entries by name, and devices from a user's own file."""

from __future__ import annotations

import importlib.resources
from importlib.resources.abc import Traversable
from pathlib import Path

from hwmodels.architecture import Architecture
from hwmodels.catalog.entries import (
    COUNT,
    FLAG,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    Entry,
    EntryError,
    near_matches,
    parse_entry,
)
from hwmodels.device import Device, MemoryTier

_DEVICE_RULES = {
    "peak_flops_per_s": POSITIVE,
    "compute_efficiency": SHARE,
    "scratchpad_bytes": POSITIVE,
    "operator_latency_s": NOT_NEGATIVE,
    "memory.bandwidth_bytes_per_s": POSITIVE,
    "memory.efficiency": SHARE,
    "memory.capacity_bytes": POSITIVE,
}
_ARCHITECTURE_RULES = {
    "num_layers": COUNT,
    "hidden_size": COUNT,
    "intermediate_size": COUNT,
    "num_heads": COUNT,
    "num_kv_heads": COUNT,
    "head_dim": COUNT,
    "vocab_size": COUNT,
    "tied_embeddings": FLAG,
    "qk_norm": FLAG,
}


class UnknownNameError(ValueError):
    """No catalog entry has this name: one line with what came, what is near, and all that is allowed."""


def device_names() -> tuple[str, ...]:
    """Names of all devices, sorted."""
    return _names("devices")


def architecture_names() -> tuple[str, ...]:
    """Names of all architectures, sorted."""
    return _names("architectures")


def device(name: str) -> Device:
    """A device of the catalog, by its name in any case.

    Raises:
        UnknownNameError: no such device.
    """
    return _device(_device_entry(name))


def architecture(name: str) -> Architecture:
    """An architecture of the catalog, by its name in any case.

    Raises:
        UnknownNameError: no such architecture.
    """
    return Architecture(**_architecture_entry(name).values)


def device_title(name: str) -> str:
    """What a person calls the device. Raises UnknownNameError."""
    return _device_entry(name).title


def architecture_title(name: str) -> str:
    """What a person calls the network. Raises UnknownNameError."""
    return _architecture_entry(name).title


def device_sources(name: str) -> dict[str, str]:
    """Where each number of a device comes from: field -> text. Raises UnknownNameError."""
    return _device_entry(name).sources


def architecture_sources(name: str) -> dict[str, str]:
    """Where each number of an architecture comes from: field -> text. Raises UnknownNameError."""
    return _architecture_entry(name).sources


def device_from_file(path: str | Path) -> Device:
    """A device from a TOML file in the catalog's format (see `hwmodels.catalog.entries`).

    Raises:
        EntryError: the file cannot be read, or its content is not a device.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EntryError(
            f"{path}: cannot be read as a text file in UTF-8: {error}; give the path of a device's TOML file"
        ) from error
    return _device(parse_entry(text, _DEVICE_RULES, where=str(path)))


def _device(entry: Entry) -> Device:
    prefix = "memory."
    memory = {name.removeprefix(prefix): value for name, value in entry.values.items() if name.startswith(prefix)}
    compute = {name: value for name, value in entry.values.items() if not name.startswith(prefix)}
    return Device(memory=MemoryTier(**memory), **compute)


def _device_entry(name: str) -> Entry:
    return parse_entry(_read("devices", name), _DEVICE_RULES, where=name)


def _architecture_entry(name: str) -> Entry:
    return parse_entry(_read("architectures", name), _ARCHITECTURE_RULES, where=name)


def _folder(section: str) -> Traversable:
    return importlib.resources.files("hwmodels.catalog") / section


def _names(section: str) -> tuple[str, ...]:
    return tuple(sorted(f.name.removesuffix(".toml") for f in _folder(section).iterdir() if f.name.endswith(".toml")))


def _read(section: str, name: str) -> str:
    slug, allowed = name.strip().lower(), _names(section)
    if slug not in allowed:
        singular = section.removesuffix("s")
        raise UnknownNameError(
            f"unknown {singular} {name!r};{near_matches(slug, allowed)} allowed: {', '.join(allowed)}"
        )
    return (_folder(section) / f"{slug}.toml").read_text(encoding="utf-8")
