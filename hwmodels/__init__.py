"""Hardware models: what a step of a language model executes, and how long a device takes for it."""

from hwmodels import catalog
from hwmodels.architecture import KINDS, LAYER_MATRICES, Architecture, kv_elements_per_token, parameters
from hwmodels.device import Device, MemoryTier
from hwmodels.interface import (
    Acceptance,
    DraftPlan,
    Footprint,
    Workload,
    chain_plan,
    uniform_footprint,
    uniform_weight_bits,
)
from hwmodels.operators import (
    OPERATORS,
    OperatorWork,
    decode_operators,
    draft_operators,
    prefill_operators,
    step_operators,
    verify_operators,
)
from hwmodels.roofline import compute_time, memory_time, operator_time, smooth_maximum
from hwmodels.speculation import (
    BestDraft,
    CycleTime,
    SpeculationResult,
    best,
    cycle_time,
    expected_log_speedup,
    expected_tokens_iid,
    smooth_best,
    speculation_speedup,
    tokens_per_cycle,
)
from hwmodels.step import StepTime, step_time, work_time

__all__ = [
    "KINDS",
    "LAYER_MATRICES",
    "OPERATORS",
    "Acceptance",
    "Architecture",
    "BestDraft",
    "CycleTime",
    "Device",
    "DraftPlan",
    "Footprint",
    "MemoryTier",
    "OperatorWork",
    "SpeculationResult",
    "StepTime",
    "Workload",
    "best",
    "catalog",
    "chain_plan",
    "compute_time",
    "cycle_time",
    "decode_operators",
    "draft_operators",
    "expected_log_speedup",
    "expected_tokens_iid",
    "kv_elements_per_token",
    "memory_time",
    "operator_time",
    "parameters",
    "prefill_operators",
    "smooth_best",
    "smooth_maximum",
    "speculation_speedup",
    "step_operators",
    "step_time",
    "tokens_per_cycle",
    "uniform_footprint",
    "uniform_weight_bits",
    "verify_operators",
    "work_time",
]
