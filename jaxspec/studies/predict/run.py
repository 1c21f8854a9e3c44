"""`jaxspec predict`: shapes, device, scheme and acceptance in; times, energy, memory and sensitivities out. Runs no network."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hwmodels
from hwmodels.analysis.design_point import DesignPoint, PricedStep, Steps, design_point, priced_steps
from hwmodels.analysis.sensitivity import elasticities, finite_elasticities, leaf_names
from hwmodels.step.step_time import StepTime
from jaxspec.compress.footprint import uniform
from jaxspec.compress.schemes import find_scheme
from jaxspec.errors import InputError
from jaxspec.report.assumptions import device_facts
from jaxspec.settings import build_config, expect, knob_values
from jaxspec.studies.kernel_notes import kernel_notes
from jaxspec.studies.measured.setup import resolve_pricing
from jaxspec.studies.predict.config import PredictConfig
from jaxspec.tune.objective import Pricing

#: Cassandra's default point, 40 % pruned and 4 bits cut with a mean unary codeword of 2.85 bits: what widths are without a
#: scheme.
_CASSANDRA = {"draft_bits": 5.11, "verify_bits": 13.9, "draft_kv_bits": 6.85, "verify_kv_bits": 10.85}

#: Settings of bits read, per weight of the layers' matrices and per KV element.
_WIDTHS = tuple(_CASSANDRA)

#: Batches at which "speculate or not" is asked.
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)

#: Smoothing of elasticities, so that two limits that are nearly equal both show.
_SENSITIVITY_TEMPERATURE = 0.02


def _widths(config: PredictConfig) -> dict[str, float]:
    """The scheme's widths by setting, or Cassandra's point; numbers that the user gives win."""
    base = _CASSANDRA
    if config.scheme is not None:
        found = find_scheme(config.scheme).expected_footprint(knob_values(config))
        # The same for all matrices of the layers.
        weights = found.draft_weight_bits["q"], found.target_weight_bits["q"]
        base = dict(zip(_WIDTHS, map(float, (*weights, found.draft_kv_bits, found.target_kv_bits)), strict=True))
    given = {name: getattr(config, name) for name in _WIDTHS}
    return base | {name: bits for name, bits in given.items() if bits is not None}


def predict(config: PredictConfig | None = None, **settings: Any) -> list[dict[str, Any]]:
    """One entry per device.

    Args:
        config: what to predict; or
        settings: the fields of `PredictConfig` by name, with its defaults: predict(acceptance=0.9, device="l40s").
            acceptance is alpha_token, or one conditional per position; the widths of a scheme follow from the four
            knobs, and without one they are those of Cassandra's default point; draft_bits and verify_bits are per
            weight of the layers' matrices, embeddings, norms and head are read at 16.
    Raises:
        InputError: a name, a number or a file that cannot be used; settings that exclude one another.
    """
    if config is not None and settings:
        raise InputError(f"a configuration came, and {', '.join(sorted(settings))} beside it; give one or the other")
    config = build_config(PredictConfig, settings, given=_given(settings)) if config is None else config
    expect(PredictConfig, config)
    widths = _widths(config)
    overridden = {name for name in _WIDTHS if getattr(config, name) is not None}
    numbers = list(config.acceptance)
    conditional = numbers * config.max_draft_length if len(numbers) == 1 else numbers
    # Every name is resolved before the first device is priced.
    pricings = {name: resolve_pricing(config, name, None) for name in config.device}
    entries = []
    for name, pricing in pricings.items():
        priced = _price(pricing, widths, jnp.asarray(conditional))
        entries.append(_entry(config, name, config.scheme, widths, conditional, priced, overridden, pricing))
    return entries


def _given(settings: dict[str, Any]) -> list[str]:
    return [name for name, value in settings.items() if value is not None]


@dataclasses.dataclass(frozen=True)
class _Priced:
    result: hwmodels.SpeculationResult
    point: DesignPoint
    steps: Steps
    elasticity: dict[str, dict[str, np.ndarray]]
    by_batch: DesignPoint


def _price(pricing: Pricing, widths: dict[str, float], conditional: jax.Array) -> _Priced:
    """Three programs: compiled as one they take longer than one by one."""
    arguments = pricing, tuple(widths.values()), conditional
    result, point, steps = jax.device_get(_point(*arguments))
    return _Priced(
        result, point, steps, jax.device_get(_elasticities(*arguments)), jax.device_get(_batches(*arguments))
    )


def _parts(pricing: Pricing, bits: tuple[float, ...], conditional: jax.Array) -> dict[str, Any]:
    return {"footprint": uniform(*bits), "acceptance": hwmodels.Acceptance(conditional=conditional)}


@jax.jit
def _point(pricing: Pricing, bits: tuple[float, ...], conditional: jax.Array):
    device, shape, workload = pricing.device, pricing.architecture, pricing.workload
    parts = _parts(pricing, bits, conditional)
    result = hwmodels.speculation_speedup(device, shape, workload=workload, **parts)
    point = design_point(device, shape, workload=workload, result=result, **parts)
    length = point.draft_length.astype(conditional.dtype)
    footprint = parts["footprint"]
    steps = priced_steps(device, shape, workload=workload, footprint=footprint, draft_length=length)
    return result, point, steps


@jax.jit
def _elasticities(pricing: Pricing, bits: tuple[float, ...], conditional: jax.Array):
    parts = _parts(pricing, bits, conditional)
    names = ["speedup_vs_bf16_ar", "tokens_per_s"]
    if pricing.device.chip is not None:
        names.append("energy_per_token_j")

    def metrics(device: hwmodels.Device, temperature: float = _SENSITIVITY_TEMPERATURE) -> dict[str, Any]:
        smooth = design_point(device, pricing.architecture, workload=pricing.workload, temperature=temperature, **parts)
        return {name: getattr(smooth, name) for name in names}

    # Of a matrix unit, tiles and waves are counted in steps: a derivative at one of them says nothing of the next.
    counted = [name for name in leaf_names(pricing.device) if name.startswith("matrix_unit.")]
    found = elasticities(metrics, pricing.device)
    if not counted:
        return found
    finite = finite_elasticities(partial(metrics, temperature=0.0), pricing.device, names=counted)
    return {name: found[name] | finite[name] for name in names}


@jax.jit
def _batches(pricing: Pricing, bits: tuple[float, ...], conditional: jax.Array) -> DesignPoint:
    parts = _parts(pricing, bits, conditional)
    device = dataclasses.replace(pricing.device, chip=None)  # no energy here

    def with_batch(batch: jax.Array) -> DesignPoint:
        workload = dataclasses.replace(pricing.workload, batch=batch)
        return design_point(device, pricing.architecture, workload=workload, **parts)

    return jax.vmap(with_batch)(jnp.asarray(_BATCHES, conditional.dtype))


def _entry(
    config: PredictConfig,
    device: str,
    scheme: str | None,
    widths: dict[str, float],
    conditional: list[float],
    priced: _Priced,
    overridden: set[str],
    pricing: Pricing,
) -> dict[str, Any]:
    result, point, steps = priced.result, priced.point, priced.steps
    named = {field.name: getattr(steps, field.name) for field in dataclasses.fields(steps)}
    status = {name: "predicted" if scheme and name not in overridden else "input" for name in widths}
    ar_bytes = sum(float(x) for x in vars(steps.ar_bf16.work.stored).values())
    return {
        "schema_version": 1,
        "architecture": config.architecture,
        "device": device,
        "scheme": scheme,
        # Whether numbers of the user's own stand for a lossless code nobody knows.
        "lossless": None
        if overridden & {"verify_bits", "verify_kv_bits"}
        else scheme is None or find_scheme(scheme).lossless,
        "workload": {
            "batch": config.batch,
            "context_tokens": config.context,
            "prompt_tokens": config.prompt_tokens,
        },
        "footprint": widths,
        "acceptance": {"conditional": conditional},
        "pays": int(point.draft_length) > 0,
        **{field: _number(getattr(point, field)) for field in (f.name for f in dataclasses.fields(point))},
        "draft_length": int(point.draft_length),
        "by_draft_length": [
            {
                "draft_length": i,
                "tokens_per_cycle": float(result.tokens_per_cycle[i]),
                "cycle_s": float(result.cycle_s[i]),
                "speedup_vs_bf16_ar": float(result.speedup_vs_bf16_ar[i]),
                "speedup_vs_stored_ar": float(result.speedup_vs_stored_ar[i]),
            }
            for i in range(len(conditional) + 1)
        ],
        "by_batch": [
            {
                "batch": batch,
                "draft_length": int(priced.by_batch.draft_length[i]),
                "speedup_vs_bf16_ar": float(priced.by_batch.speedup_vs_bf16_ar[i]),
                "speedup_vs_stored_ar": float(priced.by_batch.speedup_vs_stored_ar[i]),
                "tokens_per_s": float(priced.by_batch.tokens_per_s[i]),
                "fits": bool(priced.by_batch.held_bytes[i] <= priced.by_batch.capacity_bytes[i]),
            }
            for i, batch in enumerate(_BATCHES)
        ],
        "fits": bool(point.held_bytes <= point.capacity_bytes),
        "ar_bf16_held_bytes": ar_bytes,
        "ar_bf16_fits": bool(ar_bytes <= point.capacity_bytes),
        "operators": {
            name: dict(zip(hwmodels.OPERATORS, step.time.operator_s.tolist(), strict=True))
            for name, step in named.items()
        },
        "steps": {name: _step(step) for name, step in named.items()},
        "decoders": _decoders(pricing, priced.steps),
        "sensitivity": {
            metric: {leaf: float(value) for leaf, value in found.items() if abs(value) > 1e-6}
            for metric, found in priced.elasticity.items()
        },
        **device_facts(device),
        "status": {
            "acceptance": "input",
            "footprint": status,
            "workload": "input",
            "scheme": "input",
            # Of the device's own data, or enumerated.
            "capacity_bytes": "input",
            "area_m2": "input",
            "decoders.count": "input",
            "by_batch.batch": "input",
            "by_draft_length.draft_length": "input",
            "everything else": "predicted",
        },
        **kernel_notes(pricing.device, [uniform(*widths.values())]),
    }


def _step(step: PricedStep) -> dict[str, Any]:
    """Totals of a step: work, what limits it, energy by component."""
    work, time, energy = step.work, step.time, step.energy
    totals = {
        "total_s": float(time.total_s),
        "compute_s": float(time.compute_s.sum()),
        "memory_s": float(time.memory_s.sum()),
        "decoding_s": float(time.decoding_s.sum()),
        "flops": float(work.flops.sum()),
        "weight_bytes": float(work.weight_bytes.sum()),
        "kv_bytes": float(work.kv_bytes.sum()),
        "activation_bytes": float(work.activation_bytes.sum()),
        "launches": float(work.launches.sum()),
        "energy_j": None,
    }
    if energy is not None:
        totals["energy_j"] = {
            "arithmetic": float(energy.arithmetic_j),
            "memory": [float(x) for x in energy.memory_j],
            "decoder": float(energy.decoder_j),
            "static": float(energy.static_j),
            "total": float(energy.total_j),
        }
    return totals


def _decoders(pricing: Pricing, steps: Steps) -> dict[str, Any] | None:
    """How many decoders the device has, and how many no operator of a step would wait for."""
    if pricing.device.decoder is None:
        return None
    count = float(pricing.device.decoder.count)

    def needed(time: StepTime) -> int:
        busy = np.maximum(time.compute_s, time.memory_s)
        share = np.divide(time.decoding_s, busy, out=np.zeros_like(busy), where=busy > 0)
        # A unit is not added for a rounding error.
        return math.ceil(count * float(share.max()) * (1.0 - 1e-6))

    return {"count": count, "needed_by_draft": needed(steps.draft.time), "needed_by_verify": needed(steps.verify.time)}


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
