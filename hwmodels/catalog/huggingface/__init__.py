"""Hugging Face's config.json: the table of model families, and architectures read by it."""

from hwmodels.catalog.huggingface.families import FAMILIES
from hwmodels.catalog.huggingface.family import Family, Running
from hwmodels.catalog.huggingface.reading import (
    ConfigReading,
    architecture_from_config,
    architecture_from_config_file,
    read_config,
)

__all__ = [
    "FAMILIES",
    "ConfigReading",
    "Family",
    "Running",
    "architecture_from_config",
    "architecture_from_config_file",
    "read_config",
]
