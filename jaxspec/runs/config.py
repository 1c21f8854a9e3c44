"""The configurations of runs, from `jaxspec.settings`: frozen dataclasses, written to and read from TOML."""

from __future__ import annotations

from jaxspec.settings.base import ConfigType, build_config
from jaxspec.settings.commands import (
    QUICK,
    CommonConfig,
    EvaluateConfig,
    Objective,
    Search,
    TreeConfig,
    TuneConfig,
)
from jaxspec.settings.toml import config_hash, read_toml, to_toml

__all__ = [
    "QUICK",
    "CommonConfig",
    "ConfigType",
    "EvaluateConfig",
    "Objective",
    "Search",
    "TreeConfig",
    "TuneConfig",
    "build_config",
    "config_hash",
    "read_toml",
    "to_toml",
]
