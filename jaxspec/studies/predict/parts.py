"""Parts of a prediction's entry: totals of its steps, decoders that they need, where they find experts."""

from __future__ import annotations

import math

import numpy as np

import hwmodels
from hwmodels.analysis.design_point import Steps
from jaxspec.results import given, predicted
from jaxspec.studies.predict.result import DecoderNeeds, ExpertUse, StepTotals
from jaxspec.tuning.objective import Pricing

__all__ = ["decoder_needs", "expert_use", "step_totals"]


def step_totals(step: hwmodels.PricedStep, device: hwmodels.Device) -> StepTotals:
    """Totals of a step on a device: work, what limits it, energy by component."""
    work, time, energy = step.work, step.cost, step.cost.energy
    components = None
    if energy is not None:
        components = {
            "arithmetic": float(energy.arithmetic_j),
            "memory": [float(x) for x in energy.memory_j],
            "links": float(energy.link_j),
            "decoder": float(energy.decoder_j),
            "encoder": float(energy.encoder_j),
            "static": float(energy.static_j),
            "total": float(energy.total_j),
        }
    return StepTotals(
        total_s=predicted(float(time.total_s)),
        compute_s=predicted(float(time.compute_s.sum())),
        memory_s=predicted(float(time.memory_s.sum())),
        on_chip_s=predicted(None if device.on_chip_path is None else float(time.on_chip_s.sum())),
        decoding_s=predicted(float(time.decoding_s.sum())),
        encoding_s=predicted(None if device.encoder is None else float(time.encoding_s)),
        flops=predicted(float(work.flops.sum())),
        weight_bytes=predicted(float(work.weight_bytes.sum())),
        kv_bytes=predicted(float(work.kv_bytes.sum())),
        activation_bytes=predicted(float(work.activation_bytes.sum())),
        launches=predicted(float(work.launches.sum())),
        memory_energy_j=predicted(None if time.memory_j is None else [float(x) for x in time.memory_j]),
        energy_j=predicted(components),
    )


def expert_use(steps: Steps, pricing: Pricing) -> ExpertUse | None:
    """Which experts the steps read; None for a network without."""
    if not float(pricing.architecture.num_experts):
        return None
    named = {name: getattr(steps, name) for name in ("ar_stored", "draft", "verify")}
    is_expert = np.isin(hwmodels.OPERATORS, hwmodels.EXPERT_OPERATORS)

    def near(step: hwmodels.PricedStep) -> float:
        # Activations lie in the first memory whatever the placement.
        first = step.cost.traffic_bytes[is_expert, 0] - step.work.activation_bytes[is_expert]
        return float(first.sum() / step.work.weight_bytes[is_expert].sum())

    reads = {name: step.work.experts for name, step in named.items()}
    return ExpertUse(
        draft_pool=predicted(float(reads["draft"].pool)),
        touched=predicted({name: float(found.touched) for name, found in reads.items()}),
        read_from_first_memory=predicted({name: near(step) for name, step in named.items()}),
    )


def decoder_needs(pricing: Pricing, steps: Steps) -> DecoderNeeds | None:
    """How many decoders the device has, and how many no operator of a step would wait for."""
    if pricing.device.decoder is None:
        return None
    count = float(pricing.device.decoder.count)

    def needed(time: hwmodels.StepCost) -> int:
        busy = np.maximum(np.maximum(time.compute_s, time.memory_s), time.on_chip_s)
        share = np.divide(time.decoding_s, busy, out=np.zeros_like(busy), where=busy > 0)
        # A unit is not added for a rounding error.
        return math.ceil(count * float(share.max()) * (1.0 - 1e-6))

    return DecoderNeeds(
        count=given(count),
        needed_by_draft=predicted(needed(steps.draft.cost)),
        needed_by_verify=predicted(needed(steps.verify.cost)),
    )
