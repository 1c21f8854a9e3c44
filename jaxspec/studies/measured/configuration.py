"""One configuration of a result: counted, predicted, priced."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import hwmodels
from hwmodels.analysis.uncertainty.cycle_errors import CycleTimes as InheritedTimes
from hwmodels.analysis.uncertainty.cycle_errors import cycle_times
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from hwmodels.numerics.quick_jit import quick_jit
from hwmodels.step.step_cost import seconds_by_part
from jaxspec.compress.head import HEAD
from jaxspec.compress.knob_files import knobs_to_json
from jaxspec.compress.knobs import Knobs
from jaxspec.models.config import kinds_of
from jaxspec.results import Quantity, given, measured, predicted
from jaxspec.results.network_results import AcceptanceRates, CategoryCycles, Configuration, CycleTimes
from jaxspec.speculate.statistics import acceptance_rates, compare_cycles
from jaxspec.studies.headline_intervals import headline_intervals
from jaxspec.tuning.hard import best_length
from jaxspec.tuning.objective import DraftMeasurement, Pricing, priced_draft
from jaxspec.tuning.priced_kinds import priced_footprint

#: Result of decoding or predicting all prompts: arrays by name.
Arrays = dict[str, np.ndarray]


@quick_jit
def _priced(
    pricing: Pricing, measured: DraftMeasurement, draft_length: Array
) -> tuple[Array, dict[str, hwmodels.PricedStep], Array, InheritedTimes]:
    """Seconds of a cycle, the four steps that it and its baselines consist of, what the engine adds, and their errors."""
    found = hwmodels.price_cycle(
        pricing.device,
        pricing.architecture,
        footprint=priced_footprint(measured.footprint, pricing.architecture),
        draft_cost=priced_draft(pricing, measured),
        workload=pricing.workload,
        routing=pricing.routing,
        engine=pricing.engine,
        plan=hwmodels.chain_plan(draft_length),
    )
    draft = jax.tree.map(lambda leaf: leaf[0], found.draft)  # the only kind of draft step that a chain has
    plain = {"ar_bf16": found.baselines.bf16, "ar_stored": found.baselines.stored}
    times = cycle_times(
        pricing.device,
        bf16=plain["ar_bf16"],
        stored=plain["ar_stored"],
        cycle=[(draft_length, draft), (1.0, found.verify)],
        engine_s=found.engine_s,
    )
    return found.total_s, {"draft": draft, "verify": found.verify, **plain}, found.engine_s, times


def priced_cycle(pricing: Pricing, measurement: DraftMeasurement, draft_length: int) -> dict[str, Any]:
    """Times of a cycle and its baselines, time per operator, operating points on the roofline; as in `Configuration`.

    Its `times`, with the errors of kernels, are for intervals.
    """
    found = jax.device_get(_priced(pricing, measurement, jnp.asarray(draft_length, jnp.float32)))
    cycle_s, steps, engine_s, times = found
    total = {name: float(step.cost.total_s) for name, step in steps.items()}
    return {
        "times": times,
        "cycle": CycleTimes(
            draft_step_s=predicted(total["draft"]),
            verify_s=predicted(total["verify"]),
            total_s=predicted(float(cycle_s)),
            engine_s=predicted(float(engine_s)),
            ar_bf16_s=predicted(total["ar_bf16"]),
            ar_stored_s=predicted(total["ar_stored"]),
        ),
        "operators": predicted({name: seconds_by_part(step.cost) for name, step in steps.items()}),
        "roofline": predicted(
            {
                name: {
                    "flop_per_byte": float(step.work.flops.sum() / step.work.memory_bytes.sum()),
                    "flops_per_s": float(step.work.flops.sum() / total[name]),
                }
                for name, step in steps.items()
            }
        ),
    }


def configuration(
    knobs: Knobs,
    *,
    measurement: DraftMeasurement,
    counts: Arrays,
    expected: Arrays,
    pricing: Pricing,
    choices: Collection[str] = (),
    scatter: float = 0.0,
    categories: Sequence[str] = (),
) -> Configuration:
    """One configuration of a result.

    Args:
        knobs: hard.
        measurement: of the hard draft on calibration text (its footprint, KL).
        counts: of decoding; expected: predicted for the same prompts.
        choices: "knobs" and "draft_length" where the program chose them, by predicted times; otherwise they were given.
        scatter: of the engine's cycles, standard deviation of the logarithm; 0: not known.
        categories: of the prompts, empty where a prompt has none.
    """
    length = knobs.draft_length
    tokens, cycles = counts["generated"].astype(float), counts["cycles"].astype(float)
    compared = compare_cycles(tokens, cycles, expected["generated"], expected["cycles"])
    priced = priced_cycle(pricing, measurement, length)
    times = priced["cycle"]
    inherited = dataclasses.replace(priced.pop("times"), scatter=scatter)
    beside_first, batch = [compared.counted - 1.0], float(pricing.workload.batch)
    per_token_s = times.total_s.known / compared.counted
    chosen = lambda name, value: predicted(value) if name in choices else given(value)
    rates: dict[str, Any] = acceptance_rates(counts["accepted_at"], counts["ended_at"], counts["cycles"], length)
    read, priced_bits = measurement.footprint, priced_footprint(measurement.footprint, pricing.architecture)
    return Configuration(
        speedup_vs_bf16_ar=predicted(times.ar_bf16_s.known / per_token_s),
        speedup_vs_stored_ar=predicted(times.ar_stored_s.known / per_token_s),
        acceptance=AcceptanceRates(**{name: measured(rate) for name, rate in rates.items()}),
        bits_per_weight=measured(priced_mean(priced_bits.draft_weight_bits, pricing)),
        bits_per_weight_verify=measured(priced_mean(priced_bits.target_weight_bits, pricing)),
        bits_per_kv=measured(float(np.mean(read.draft_kv_bits))),
        bits_per_kv_verify=measured(float(np.mean(read.target_kv_bits))),
        **head_bits(read),
        kl=measured(float(measurement.kl)),
        draft_length=chosen("draft_length", length),
        draft_length_predicted_best=predicted(best_length(pricing, measurement)[0]),
        tokens_per_cycle_predicted=predicted(compared.predicted),
        tokens_per_cycle_counted=measured(compared.counted, compared.standard_error),
        tokens_per_cycle_gap_in_standard_errors=measured(compared.gap_in_standard_errors),
        knobs=chosen("knobs", knobs_to_json(knobs, kinds_of(read.draft_weight_bits))),
        intervals=headline_intervals(inherited, beside_first, [compared.standard_error], batch=batch),
        by_category={
            name: _of_category(np.asarray(categories) == name, counts, expected, length, times)
            for name in sorted(set(categories))
            if name
        },
        **priced,
    )


def _of_category(
    chosen: np.ndarray, counts: Arrays, expected: Arrays, draft_length: int, times: CycleTimes
) -> CategoryCycles:
    """What a configuration does on some of its prompts.

    Args:
        chosen: " prompt", which.
    """
    names = ("generated", "cycles", "accepted_at", "ended_at")
    own = {name: np.asarray(counts[name])[chosen] for name in names}
    predictions = [np.asarray(expected[name])[chosen] for name in ("generated", "cycles")]
    compared = compare_cycles(own["generated"], own["cycles"], *predictions)
    rates: dict[str, Any] = acceptance_rates(own["accepted_at"], own["ended_at"], own["cycles"], draft_length)
    return CategoryCycles(
        prompts=given(int(chosen.sum())),
        alpha_token=measured(rates["alpha_token"]),
        tokens_per_cycle_predicted=predicted(compared.predicted),
        tokens_per_cycle_counted=measured(compared.counted, compared.standard_error),
        tokens_per_cycle_gap_in_standard_errors=measured(compared.gap_in_standard_errors),
        speedup_vs_bf16_ar=predicted(times.ar_bf16_s.known * compared.counted / times.total_s.known),
    )


def head_bits(
    read: hwmodels.Footprint, status: Callable[[float], Quantity[float]] = measured
) -> dict[str, Quantity[float]]:
    """Bits per weight of the LM head by a result's names; none where it is left at 16 bits."""
    if read.draft_weight_bits.get(HEAD, UNCOMPRESSED_BITS) == UNCOMPRESSED_BITS:
        return {}
    found = {"": read.draft_weight_bits, "_verify": read.target_weight_bits}
    return {f"bits_per_head_weight{step}": status(float(bits[HEAD])) for step, bits in found.items()}


def priced_mean(bits: dict[str, Any], pricing: Pricing) -> float:
    """Bits per stored weight of the matrices of layers, kinds weighted by the priced architecture's parameters."""
    stored = hwmodels.parameters(pricing.architecture)
    weights = np.asarray([float(stored[kind]) for kind in hwmodels.ALL_LAYER_MATRICES])
    return float(np.asarray([float(bits[kind]) for kind in hwmodels.ALL_LAYER_MATRICES]) @ weights / weights.sum())
