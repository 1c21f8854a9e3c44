"""Hardware models: what a step of a language model executes, and how long a device takes for it."""

from hwmodels import xla_flags as xla_flags  # first: it sets what XLA reads at its first program

# isort: split
from hwmodels import catalog
from hwmodels.analysis.design_point import DesignPoint, chip_area, design_costs, design_point, elasticities, leaf_names
from hwmodels.chip.bill import chip_bill
from hwmodels.chip.blocks import Technology
from hwmodels.compute.unit import ComputeUnit
from hwmodels.device import Chip, Device, ExtraRows, MemoryTier, OnChipPath, stack_devices
from hwmodels.network.architecture import (
    ALL_LAYER_MATRICES,
    EXPERT_MATRICES,
    KINDS,
    LAYER_MATRICES,
    Architecture,
    Footprint,
    Workload,
    kv_elements_per_token,
    parameters,
    uniform_footprint,
    uniform_weight_bits,
)
from hwmodels.network.operators import (
    EXPERT_OPERATORS,
    OPERATORS,
    OperatorWork,
    StepShape,
    busiest_load,
    decode_operators,
    step_operators,
    touched_experts,
)
from hwmodels.network.routing import UNIFORM, Routing, measured_routing, zipf_routing
from hwmodels.speculation.acceptance import (
    Acceptance,
    AcceptanceTrace,
    TraceError,
    chain_cycles,
    read_trace,
    write_trace,
)
from hwmodels.speculation.chains import (
    SpeculationResult,
    best,
    expected_tokens_iid,
    priced_chains,
    serving_cycle,
    serving_step,
    tokens_per_cycle,
)
from hwmodels.speculation.cycle import Baselines, Case, CycleCost, baselines, price
from hwmodels.speculation.draft_cost import (
    COMPRESSED_COPY,
    DraftCost,
    block_head,
    eagle_head,
    held_with_draft,
    medusa_head,
)
from hwmodels.speculation.engine_logs import NO_ENGINE, EngineLogError, EngineTerms, read_engine_log
from hwmodels.speculation.plan import Plan, block_plan, chain_plan, expected_tree_tokens, plan_family, tree_plan
from hwmodels.step.capacity import held_bytes, longest_context
from hwmodels.step.priced_steps import PricedStep, price_steps
from hwmodels.step.step_cost import StepCost, seconds_by_part, step_cost

__all__ = [
    "ALL_LAYER_MATRICES",
    "COMPRESSED_COPY",
    "EXPERT_MATRICES",
    "EXPERT_OPERATORS",
    "KINDS",
    "LAYER_MATRICES",
    "NO_ENGINE",
    "OPERATORS",
    "UNIFORM",
    "Acceptance",
    "AcceptanceTrace",
    "Architecture",
    "Baselines",
    "Case",
    "Chip",
    "ComputeUnit",
    "CycleCost",
    "DesignPoint",
    "Device",
    "DraftCost",
    "EngineLogError",
    "EngineTerms",
    "ExtraRows",
    "Footprint",
    "MemoryTier",
    "OnChipPath",
    "OperatorWork",
    "Plan",
    "PricedStep",
    "Routing",
    "SpeculationResult",
    "StepCost",
    "StepShape",
    "Technology",
    "TraceError",
    "Workload",
    "baselines",
    "best",
    "block_head",
    "block_plan",
    "busiest_load",
    "catalog",
    "chain_cycles",
    "chain_plan",
    "chip_area",
    "chip_bill",
    "decode_operators",
    "design_costs",
    "design_point",
    "eagle_head",
    "elasticities",
    "expected_tokens_iid",
    "expected_tree_tokens",
    "held_bytes",
    "held_with_draft",
    "kv_elements_per_token",
    "leaf_names",
    "longest_context",
    "measured_routing",
    "medusa_head",
    "parameters",
    "plan_family",
    "price",
    "price_steps",
    "priced_chains",
    "read_engine_log",
    "read_trace",
    "seconds_by_part",
    "serving_cycle",
    "serving_step",
    "stack_devices",
    "step_cost",
    "step_operators",
    "tokens_per_cycle",
    "touched_experts",
    "tree_plan",
    "uniform_footprint",
    "uniform_weight_bits",
    "write_trace",
    "zipf_routing",
]
