"""Devices, architectures and serving engines as data, each number beside its source."""

from hwmodels.catalog.entries import EntryError
from hwmodels.catalog.groups import Division, check_division, check_draft_division, grouped
from hwmodels.catalog.huggingface import (
    ConfigReading,
    architecture_from_config,
    architecture_from_config_file,
    read_config,
)
from hwmodels.catalog.links import link, link_entry, link_names
from hwmodels.catalog.loader import (
    OWN_ENGINE,
    UnknownNameError,
    architecture,
    architecture_names,
    architecture_sources,
    architecture_title,
    device,
    device_entry,
    device_from_file,
    device_names,
    device_sources,
    device_text,
    device_title,
    engine,
    engine_gap,
    engine_names,
    engine_scatter,
    engine_sources,
)

__all__ = [
    "OWN_ENGINE",
    "ConfigReading",
    "Division",
    "EntryError",
    "UnknownNameError",
    "architecture",
    "architecture_from_config",
    "architecture_from_config_file",
    "architecture_names",
    "architecture_sources",
    "architecture_title",
    "check_division",
    "check_draft_division",
    "device",
    "device_entry",
    "device_from_file",
    "device_names",
    "device_sources",
    "device_text",
    "device_title",
    "engine",
    "engine_gap",
    "engine_names",
    "engine_scatter",
    "engine_sources",
    "grouped",
    "link",
    "link_entry",
    "link_names",
    "read_config",
]
