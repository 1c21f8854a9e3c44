"""Hugging Face's config.json: the table of model families, and architectures read by it."""

from hwmodels.catalog.huggingface.expert_layers import ExpertSettings, experts_of
from hwmodels.catalog.huggingface.families import FAMILIES, family_called
from hwmodels.catalog.huggingface.family import Family
from hwmodels.catalog.huggingface.reading import (
    ConfigReading,
    architecture_from_config,
    architecture_from_config_file,
    positions_of_config,
    read_config,
    unmodelled_feature,
)
from hwmodels.catalog.huggingface.running import Rotary, RouterRule, Running, Setting
from hwmodels.catalog.huggingface.settings import Settings
from hwmodels.catalog.huggingface.windows import layer_windows, layers_with_linear_attention
from hwmodels.catalog.huggingface.wrappers import WRAPPERS, Wrapper, nested_text, wrapper_of

__all__ = [
    "FAMILIES",
    "WRAPPERS",
    "ConfigReading",
    "ExpertSettings",
    "Family",
    "Rotary",
    "RouterRule",
    "Running",
    "Setting",
    "Settings",
    "Wrapper",
    "architecture_from_config",
    "architecture_from_config_file",
    "experts_of",
    "family_called",
    "layer_windows",
    "layers_with_linear_attention",
    "nested_text",
    "positions_of_config",
    "read_config",
    "unmodelled_feature",
    "wrapper_of",
]
