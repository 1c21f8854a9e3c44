"""What a network is to hardware: architecture, workload, footprint, operators of a step."""

from hwmodels.network.architecture import (
    ALL_LAYER_MATRICES,
    EXPERT_MATRICES,
    KINDS,
    LAYER_MATRICES,
    Architecture,
    AttentionShape,
    attention_shape,
    cached_tokens,
    kv_elements_per_token,
    parameters,
)
from hwmodels.network.footprint import Footprint, uniform_footprint, uniform_weight_bits
from hwmodels.network.routing import (
    EVERY_EXPERT,
    UNIFORM,
    PooledChoices,
    Routing,
    independent_draws,
    independent_sequences,
    measured_routing,
    pooled_choices,
    touched_share,
    zipf_routing,
)
from hwmodels.network.workload import Workload

__all__ = [
    "ALL_LAYER_MATRICES",
    "EVERY_EXPERT",
    "EXPERT_MATRICES",
    "KINDS",
    "LAYER_MATRICES",
    "UNIFORM",
    "Architecture",
    "AttentionShape",
    "Footprint",
    "PooledChoices",
    "Routing",
    "Workload",
    "attention_shape",
    "cached_tokens",
    "independent_draws",
    "independent_sequences",
    "kv_elements_per_token",
    "measured_routing",
    "parameters",
    "pooled_choices",
    "touched_share",
    "uniform_footprint",
    "uniform_weight_bits",
    "zipf_routing",
]
