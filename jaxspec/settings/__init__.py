"""Settings of all commands: types, defaults, limits and help, stated once and checked however a configuration is made.

Nothing here imports JAX, so that the command line refuses bad settings at once.
"""

from jaxspec.settings.base import Settings, build_config, expect, notes, refuse_unused
from jaxspec.settings.commands import (
    QUICK,
    CommonConfig,
    EvaluateConfig,
    TreeConfig,
    TuneConfig,
    quick_settings,
)
from jaxspec.settings.draft import knob_values
from jaxspec.settings.draft_kinds import DRAFT_NAMES
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.settings.packing import PackConfig
from jaxspec.settings.prediction import PredictConfig
from jaxspec.settings.toml import config_hash, read_toml, to_toml

__all__ = [
    "DRAFT_NAMES",
    "MAX_DRAFT_LENGTH",
    "QUICK",
    "CommonConfig",
    "EvaluateConfig",
    "PackConfig",
    "PredictConfig",
    "Settings",
    "TreeConfig",
    "TuneConfig",
    "build_config",
    "config_hash",
    "expect",
    "knob_values",
    "notes",
    "quick_settings",
    "read_toml",
    "refuse_unused",
    "to_toml",
]
