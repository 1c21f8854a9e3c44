"""One step on a device: time by cause, traffic, energy, and what must be held."""

from hwmodels.step.capacity import HeldBytes, activation_buffer_bytes, held_bytes, longest_context
from hwmodels.step.energy import StepEnergy, idle_energy, memory_energy, step_energy
from hwmodels.step.priced_steps import PricedStep, group_step, price_steps
from hwmodels.step.roofline_cases import (
    MixedSpeedup,
    compute_bound_speedup,
    draft_ratio,
    memory_bound_speedup,
    mixed_speedup,
)
from hwmodels.step.step_cost import (
    STEP_PARTS,
    DecoderCost,
    OnChipCost,
    StepCost,
    decoder_cost,
    decoder_energy,
    memory_time,
    on_chip_cost,
    seconds_by_part,
    traffic_by_memory,
)

__all__ = [
    "STEP_PARTS",
    "DecoderCost",
    "HeldBytes",
    "MixedSpeedup",
    "OnChipCost",
    "PricedStep",
    "StepCost",
    "StepEnergy",
    "activation_buffer_bytes",
    "compute_bound_speedup",
    "decoder_cost",
    "decoder_energy",
    "draft_ratio",
    "group_step",
    "held_bytes",
    "idle_energy",
    "longest_context",
    "memory_bound_speedup",
    "memory_energy",
    "memory_time",
    "mixed_speedup",
    "on_chip_cost",
    "price_steps",
    "seconds_by_part",
    "step_energy",
    "traffic_by_memory",
]
