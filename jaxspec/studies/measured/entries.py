"""The parts of result.json that one configuration fills: counted, predicted, priced, each number with its status."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import hwmodels
from jaxspec.compress.footprint import by_kind
from jaxspec.compress.knob_files import knobs_to_json
from jaxspec.compress.knobs import Knobs
from jaxspec.speculate.statistics import acceptance_rates, compare_cycles
from jaxspec.tune.hard import best_length
from jaxspec.tune.objective import EXPERT_STANDS_FOR, DraftMeasurement, Pricing, priced_footprint

#: Result of decoding or predicting all prompts: arrays by name.
Arrays = dict[str, np.ndarray]

#: Metric -> status. Drafts and their lengths are choices of the program, by predicted times, unless the user gives them.
STATUS = {
    "speedup_vs_bf16_ar": "predicted",
    "speedup_vs_stored_ar": "predicted",
    "acceptance": "measured",
    "bits_per_weight": "measured",
    "bits_per_weight_verify": "measured",
    "bits_per_kv": "measured",
    "bits_per_kv_verify": "measured",
    "draft_length": "predicted",
    "tokens_per_cycle_predicted": "predicted",
    "tokens_per_cycle_counted": "measured",
    "tokens_per_cycle_standard_error": "measured",
    "tokens_per_cycle_gap_in_standard_errors": "measured",
    "draft_length_predicted_best": "predicted",
    "knobs": "predicted",
    "kl": "measured",
    "cycle": "predicted",
    "operators": "predicted",
    "roofline": "predicted",
}


@jax.jit
def _priced(
    pricing: Pricing, measured: DraftMeasurement, draft_length: Array
) -> tuple[Array, dict[str, hwmodels.PricedStep]]:
    """Seconds of a cycle, and the four steps that it and its baselines consist of."""
    found = hwmodels.price_decoding(
        pricing.device,
        pricing.architecture,
        footprint=priced_footprint(measured.footprint),
        draft_cost=hwmodels.DraftCost(),
        workload=pricing.workload,
        plan=hwmodels.chain_plan(draft_length),
    )
    draft = jax.tree.map(lambda leaf: leaf[0], found.cycle.draft)  # the only kind of draft step that a chain has
    plain = {"ar_bf16": found.baselines.bf16, "ar_stored": found.baselines.stored}
    return found.cycle.total_s, {"draft": draft, "verify": found.cycle.verify, **plain}


def cycle_entry(pricing: Pricing, measured: DraftMeasurement, draft_length: int) -> dict[str, Any]:
    """Times of a cycle and its baselines, time per operator, operating points on the roofline."""
    cycle_s, steps = jax.device_get(_priced(pricing, measured, jnp.asarray(draft_length, jnp.float32)))
    total = {name: float(step.cost.total_s) for name, step in steps.items()}
    return {
        "cycle": {
            "draft_step_s": total["draft"],
            "verify_s": total["verify"],
            "total_s": float(cycle_s),
            "ar_bf16_s": total["ar_bf16"],
            "ar_stored_s": total["ar_stored"],
        },
        "operators": {
            name: dict(zip(hwmodels.OPERATORS, step.cost.operator_s.tolist(), strict=True))
            for name, step in steps.items()
        },
        "roofline": {
            name: {
                "flop_per_byte": float(step.work.flops.sum() / step.work.memory_bytes.sum()),
                "flops_per_s": float(step.work.flops.sum() / total[name]),
            }
            for name, step in steps.items()
        },
    }


def configuration_entry(
    knobs: Knobs,
    *,
    measured: DraftMeasurement,
    counted: Arrays,
    predicted: Arrays,
    pricing: Pricing,
    given: Collection[str] = (),
) -> dict[str, Any]:
    """One configuration of result.json.

    Args:
        knobs: hard.
        measured: of the hard draft on calibration text (its footprint, KL).
        counted: from `decode_prompts`; predicted: from `predict_cycles`, of the same prompts.
        given: metrics that the user, or a paper, gave: their status is "input".
    """
    length = knobs.draft_length
    tokens, cycles = counted["generated"].astype(float), counted["cycles"].astype(float)
    predicted_tokens = predicted["cycles"] + predicted["survival"].sum(axis=1)
    compared = compare_cycles(tokens, cycles, predicted_tokens, predicted["cycles"])
    priced = cycle_entry(pricing, measured, length)
    per_token_s = priced["cycle"]["total_s"] / compared.counted
    return {
        "speedup_vs_bf16_ar": priced["cycle"]["ar_bf16_s"] / per_token_s,
        "speedup_vs_stored_ar": priced["cycle"]["ar_stored_s"] / per_token_s,
        "acceptance": acceptance_rates(counted["accepted_at"], counted["cycles"], length),
        "bits_per_weight": _priced_mean(measured.footprint.draft_weight_bits, pricing),
        "bits_per_weight_verify": _priced_mean(measured.footprint.target_weight_bits, pricing),
        "bits_per_kv": float(np.mean(measured.footprint.draft_kv_bits)),
        "bits_per_kv_verify": float(np.mean(measured.footprint.target_kv_bits)),
        "kl": float(measured.kl),
        "draft_length": length,
        "draft_length_predicted_best": best_length(pricing, measured)[0],
        "tokens_per_cycle_predicted": compared.predicted,
        "tokens_per_cycle_counted": compared.counted,
        "tokens_per_cycle_standard_error": compared.standard_error,
        "tokens_per_cycle_gap_in_standard_errors": compared.gap_in_standard_errors,
        "knobs": knobs_to_json(knobs),
        "status": STATUS | dict.fromkeys(given, "input"),
        **priced,
    }


def _priced_mean(bits: dict[str, Any], pricing: Pricing) -> float:
    """Bits per stored weight of the compressed matrices, kinds weighted by the priced architecture's parameters."""
    stored = {kind: float(count) for kind, count in hwmodels.parameters(pricing.architecture).items()}
    for kind, stands_for in EXPERT_STANDS_FOR.items():
        stored[stands_for] += stored[kind] + stored["shared"] / len(EXPERT_STANDS_FOR)
    share = np.asarray([stored[kind] for kind in hwmodels.LAYER_MATRICES])
    return float(np.mean(np.asarray(by_kind(bits)), axis=0) @ share / share.sum())
