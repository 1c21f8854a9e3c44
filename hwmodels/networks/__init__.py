"""Decoder networks by Hugging Face's config.json: the table of model families, the one reader, and the writer."""

from hwmodels.networks.families import FAMILIES, family_called
from hwmodels.networks.family import Family, Running, Setting
from hwmodels.networks.heads import DraftHead, draft_head
from hwmodels.networks.reading import (
    ConfigReading,
    architecture_from_config,
    architecture_from_config_file,
    draft_head_in_file,
    head_architecture,
    positions_of_config,
    read_config,
    read_config_file,
)
from hwmodels.networks.running import (
    ACTIVATION_NAMES,
    RunningNetwork,
    read_running,
    runnable_families,
    runnable_names,
    running_row,
)
from hwmodels.networks.spec import (
    ExpertSizes,
    LatentSizes,
    LearnedPositions,
    LinearSizes,
    NetworkSpec,
    RopeSpec,
    SharedSizes,
)
from hwmodels.networks.stored import StoredForm
from hwmodels.networks.wrappers import WRAPPERS, Wrapper, text_config, wrapper_of
from hwmodels.networks.writing import written_config

__all__ = [
    "ACTIVATION_NAMES",
    "FAMILIES",
    "WRAPPERS",
    "ConfigReading",
    "DraftHead",
    "ExpertSizes",
    "Family",
    "LatentSizes",
    "LearnedPositions",
    "LinearSizes",
    "NetworkSpec",
    "RopeSpec",
    "Running",
    "RunningNetwork",
    "Setting",
    "SharedSizes",
    "StoredForm",
    "Wrapper",
    "architecture_from_config",
    "architecture_from_config_file",
    "draft_head",
    "draft_head_in_file",
    "family_called",
    "head_architecture",
    "positions_of_config",
    "read_config",
    "read_config_file",
    "read_running",
    "runnable_families",
    "runnable_names",
    "running_row",
    "text_config",
    "wrapper_of",
    "written_config",
]
