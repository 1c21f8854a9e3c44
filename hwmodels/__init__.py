"""Hardware models: what a step of a language model executes, and how long a device takes for it."""

from hwmodels import catalog
from hwmodels.compute.unit import ComputeUnit
from hwmodels.device import Chip, Device, MemoryTier
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
from hwmodels.network.operators import (
    EXPERT_OPERATORS,
    MATRIX_OPERATORS,
    OPERATORS,
    MatrixShapes,
    OperatorWork,
    StoredBytes,
    decode_operators,
    step_operators,
    touched_experts,
)
from hwmodels.network.routing import UNIFORM, Routing
from hwmodels.network.workload import Workload
from hwmodels.numerics.smoothing import smooth_maximum
from hwmodels.speculation.chains import (
    BestDraft,
    SpeculationResult,
    best,
    expected_log_speedup,
    expected_tokens_iid,
    smooth_best,
    speculation_speedup,
    tokens_per_cycle,
)
from hwmodels.speculation.cycle import Baselines, CycleCost, baselines, price_cycle
from hwmodels.speculation.draft_cost import DraftCost
from hwmodels.speculation.plan import Acceptance, Plan, chain_plan, plan_family, tree_plan
from hwmodels.step.priced_steps import PricedStep, price_steps
from hwmodels.step.step_cost import StepCost, step_cost

__all__ = [
    "ALL_LAYER_MATRICES",
    "EXPERT_MATRICES",
    "EXPERT_OPERATORS",
    "KINDS",
    "LAYER_MATRICES",
    "MATRIX_OPERATORS",
    "OPERATORS",
    "UNIFORM",
    "Acceptance",
    "Architecture",
    "AttentionShape",
    "Baselines",
    "BestDraft",
    "Chip",
    "ComputeUnit",
    "CycleCost",
    "Device",
    "DraftCost",
    "Footprint",
    "MatrixShapes",
    "MemoryTier",
    "OperatorWork",
    "Plan",
    "PricedStep",
    "Routing",
    "SpeculationResult",
    "StepCost",
    "StoredBytes",
    "Workload",
    "attention_shape",
    "baselines",
    "best",
    "cached_tokens",
    "catalog",
    "chain_plan",
    "decode_operators",
    "expected_log_speedup",
    "expected_tokens_iid",
    "kv_elements_per_token",
    "parameters",
    "plan_family",
    "price_cycle",
    "price_steps",
    "smooth_best",
    "smooth_maximum",
    "speculation_speedup",
    "step_cost",
    "step_operators",
    "tokens_per_cycle",
    "touched_experts",
    "tree_plan",
    "uniform_footprint",
    "uniform_weight_bits",
]
