"""Devices and architectures as data, each number beside its source."""

from hwmodels.catalog.entries import EntryError
from hwmodels.catalog.loader import (
    UnknownNameError,
    architecture,
    architecture_names,
    architecture_sources,
    architecture_title,
    device,
    device_from_file,
    device_names,
    device_sources,
    device_title,
)

__all__ = [
    "EntryError",
    "UnknownNameError",
    "architecture",
    "architecture_names",
    "architecture_sources",
    "architecture_title",
    "device",
    "device_from_file",
    "device_names",
    "device_sources",
    "device_title",
]
