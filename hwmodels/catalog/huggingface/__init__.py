"""Hugging Face's config.json: the table of model families, and architectures read by it."""

from hwmodels.catalog.huggingface.families import FAMILIES
from hwmodels.catalog.huggingface.family import Family
from hwmodels.catalog.huggingface.reading import (
    ConfigReading,
    architecture_from_config,
    architecture_from_config_file,
    read_config,
)
from hwmodels.catalog.huggingface.running import Rotary, Running, Setting
from hwmodels.catalog.huggingface.windows import layer_windows

__all__ = [
    "FAMILIES",
    "ConfigReading",
    "Family",
    "Rotary",
    "Running",
    "Setting",
    "architecture_from_config",
    "architecture_from_config_file",
    "layer_windows",
    "read_config",
]
