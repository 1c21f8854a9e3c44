"""Mechanism of all configurations: types, defaults, limits and help, stated once and checked however one is made.

Each study has a configuration of its own (`jaxspec.studies.<study>.config`). Nothing here imports JAX, so that the command
line refuses bad settings at once.
"""

from jaxspec.settings.base import (
    Layer,
    Settings,
    build_config,
    config_hash,
    expect,
    layered_config,
    notes,
    quick_settings,
    read_layer,
    read_toml,
    refuse_unused,
    to_toml,
)
from jaxspec.settings.common import CommonConfig
from jaxspec.settings.draft_kinds import knob_values
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH

__all__ = [
    "MAX_DRAFT_LENGTH",
    "CommonConfig",
    "Layer",
    "Settings",
    "build_config",
    "config_hash",
    "expect",
    "knob_values",
    "layered_config",
    "notes",
    "quick_settings",
    "read_layer",
    "read_toml",
    "refuse_unused",
    "to_toml",
]
