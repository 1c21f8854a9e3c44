"""Names of the catalog, and of networks that ship, without loading them: for the tab key, which must not wait for JAX."""

from __future__ import annotations

import importlib.util
from pathlib import Path

__all__ = ["catalog_architectures", "catalog_devices", "shipped_networks"]


def catalog_devices() -> tuple[str, ...]:
    """Names of all devices, sorted."""
    return _names("devices")


def catalog_architectures() -> tuple[str, ...]:
    """Names of all architectures, sorted."""
    return _names("architectures")


def shipped_networks() -> tuple[str, ...]:
    """Networks whose weights are part of the package, by the names that `--model` takes."""
    return ("embedded", "embedded-small", "embedded-moe", "embedded-arithmetic", "embedded-judge")


def _names(folder: str) -> tuple[str, ...]:
    # Finding a package does not import it; importing it would load JAX.
    package = importlib.util.find_spec("hwmodels")
    places = [] if package is None else package.submodule_search_locations or []
    return tuple(sorted(file.stem for place in places for file in Path(place, "catalog", folder).glob("*.toml")))
