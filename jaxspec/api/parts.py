"""Devices and architectures by name or path."""

from __future__ import annotations

import os

from hwmodels import Architecture, Device
from jaxspec.settings.coercion import as_path
from jaxspec.studies.measured.pricing import resolve_architecture, resolve_device

__all__ = ["architecture", "device"]


def device(name: str | os.PathLike[str]) -> Device:
    """A device of the catalog by name, or of your own from a TOML file.

    Raises:
        InputError: an unknown name, or a file that is no device; in one line.
    """
    return resolve_device(as_path("device", name))


def architecture(name: str | os.PathLike[str]) -> Architecture:
    """Shapes of a network: of the catalog by name, of a Hugging Face config.json, or of the directory that holds one.

    Raises:
        InputError: an unknown name, or a file that cannot be used; in one line.
    """
    return resolve_architecture(as_path("architecture", name), None)
