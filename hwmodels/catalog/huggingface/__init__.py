"""Hugging Face's config.json: the table of model families, and architectures read by it."""

from hwmodels.catalog.huggingface.expert_layers import ExpertSettings, experts_of
from hwmodels.catalog.huggingface.families import FAMILIES, family_called
from hwmodels.catalog.huggingface.family import Family
from hwmodels.catalog.huggingface.heads import DraftHead, draft_head
from hwmodels.catalog.huggingface.reading import (
    ConfigReading,
    architecture_from_config,
    architecture_from_config_file,
    draft_head_in_file,
    head_architecture,
    positions_of_config,
    read_config,
    read_config_file,
    unmodelled_feature,
)
from hwmodels.catalog.huggingface.running import Rotary, RouterRule, Running, Setting
from hwmodels.catalog.huggingface.settings import Settings
from hwmodels.catalog.huggingface.stored import StoredForm
from hwmodels.catalog.huggingface.windows import layer_windows, layers_with_linear_attention
from hwmodels.catalog.huggingface.wrappers import WRAPPERS, Wrapper, nested_text, wrapper_of

__all__ = [
    "FAMILIES",
    "WRAPPERS",
    "ConfigReading",
    "DraftHead",
    "ExpertSettings",
    "Family",
    "Rotary",
    "RouterRule",
    "Running",
    "Setting",
    "Settings",
    "StoredForm",
    "Wrapper",
    "architecture_from_config",
    "architecture_from_config_file",
    "draft_head",
    "draft_head_in_file",
    "experts_of",
    "family_called",
    "head_architecture",
    "layer_windows",
    "layers_with_linear_attention",
    "nested_text",
    "positions_of_config",
    "read_config",
    "read_config_file",
    "unmodelled_feature",
    "wrapper_of",
]
