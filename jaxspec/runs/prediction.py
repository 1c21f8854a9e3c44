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
from hwmodels.design_point import DesignPoint, PricedStep, Steps, design_point, priced_steps
from hwmodels.sensitivity import elasticities, finite_elasticities, leaf_names
from hwmodels.step import StepTime
from jaxspec.compress.scheme_widths import Widths, scheme_widths
from jaxspec.errors import InputError
from jaxspec.runs.config import CommonConfig, build_config
from jaxspec.runs.kernel_notes import kernel_notes
from jaxspec.runs.setup import resolve_pricing, scheme_footprint
from jaxspec.tune.objective import Pricing

_MAX_LENGTH = 64

#: Cassandra's default point, 40 % pruned and 4 bits cut with a mean unary codeword of 2.85 bits: what widths are without a
#: scheme.
_CASSANDRA = Widths(5.11, 13.9, 6.85, 10.85, lossless=True)

#: Batches at which "speculate or not" is asked.
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)

#: Smoothing of elasticities, so that two limits that are nearly equal both show.
_SENSITIVITY_TEMPERATURE = 0.02


def _conditional(acceptance: str, max_draft_length: int) -> list[float]:
    try:
        numbers = [float(part) for part in acceptance.split(",")]
    except ValueError as error:
        raise InputError(f"acceptance is {acceptance!r}; give numbers from 0 to 1, separated by commas") from error
    if not all(0 <= number <= 1 for number in numbers):
        raise InputError(f"acceptance is {acceptance!r}; allowed are numbers from 0 to 1")
    if not 1 <= max_draft_length <= _MAX_LENGTH:
        raise InputError(f"max draft length is {max_draft_length}; allowed are 1 to {_MAX_LENGTH}")
    return numbers * max_draft_length if len(numbers) == 1 else numbers


def _widths(scheme: str | None, cuts: dict[str, float], given: dict[str, float | None]) -> Widths:
    """The scheme's widths, or Cassandra's point; numbers that the user gives win."""
    base = _CASSANDRA if scheme is None else scheme_widths(scheme, **cuts)
    own = {name: bits for name, bits in given.items() if bits is not None}
    widths = base._replace(**own)
    for name, bits in widths._asdict().items():
        if name != "lossless" and not (math.isfinite(bits) and 0 < bits <= 64):
            raise InputError(f"{name} is {bits:g} bits; allowed is more than 0 to 64")
    return widths


def predict(
    *,
    architecture: str | None = None,
    device: str | None = None,
    batch: int | None = None,
    context: int | None = None,
    prompt_tokens: int | None = None,
    scheme: str | None = None,
    weight_prune: float = 0.4,
    weight_cut_bits: float = 4.0,
    kv_prune: float = 0.0,
    kv_cut_bits: float = 4.0,
    acceptance: str = "0.8",
    draft_bits: float | None = None,
    verify_bits: float | None = None,
    draft_kv_bits: float | None = None,
    verify_kv_bits: float | None = None,
    max_draft_length: int = 8,
) -> list[dict[str, Any]]:
    """One entry per device.

    Args:
        scheme: of `WIDTH_SCHEMES`; its widths follow from the four knobs. Without one, Cassandra's default point.
        acceptance: alpha_token, or one conditional per position.
        draft_bits, verify_bits: per weight of the layers' matrices; embeddings, norms and head are read at 16.
    Raises:
        InputError: a name, a number or a file that cannot be used.
    """
    cuts = dict(weight_prune=weight_prune, weight_cut_bits=weight_cut_bits, kv_prune=kv_prune, kv_cut_bits=kv_cut_bits)
    given = dict(draft_weight=draft_bits, target_weight=verify_bits, draft_kv=draft_kv_bits, target_kv=verify_kv_bits)
    widths = _widths(scheme, cuts, given)
    names = dict(zip(given, ("draft_bits", "verify_bits", "draft_kv_bits", "verify_kv_bits"), strict=True))
    overridden = {names[name] for name, bits in given.items() if bits is not None}
    settings = {"architecture": architecture, "device": device, "batch": batch, "context": context}
    config = build_config(CommonConfig, settings | {"prompt_tokens": prompt_tokens})
    conditional = _conditional(acceptance, max_draft_length)
    entries = []
    for name in config.device:
        pricing = resolve_pricing(config, name, None)
        priced = _price(pricing, widths, jnp.asarray(conditional))
        entries.append(_entry(config, name, scheme, widths, conditional, priced, overridden, pricing))
    return entries


@dataclasses.dataclass(frozen=True)
class _Priced:
    result: hwmodels.SpeculationResult
    point: DesignPoint
    steps: Steps
    elasticity: dict[str, dict[str, np.ndarray]]
    by_batch: DesignPoint


def _price(pricing: Pricing, widths: Widths, conditional: jax.Array) -> _Priced:
    """Three programs: compiled as one they take longer than one by one."""
    arguments = pricing, tuple(widths[:4]), conditional
    result, point, steps = jax.device_get(_point(*arguments))
    return _Priced(
        result, point, steps, jax.device_get(_elasticities(*arguments)), jax.device_get(_batches(*arguments))
    )


def _parts(pricing: Pricing, bits: tuple[float, ...], conditional: jax.Array) -> dict[str, Any]:
    footprint = scheme_footprint(Widths(*bits, lossless=True))
    return {"footprint": footprint, "acceptance": hwmodels.Acceptance(conditional=conditional)}


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
    config: CommonConfig,
    device: str,
    scheme: str | None,
    widths: Widths,
    conditional: list[float],
    priced: _Priced,
    overridden: set[str],
    pricing: Pricing,
) -> dict[str, Any]:
    result, point, steps = priced.result, priced.point, priced.steps
    named = {field.name: getattr(steps, field.name) for field in dataclasses.fields(steps)}
    bits = {
        "draft_bits": widths.draft_weight,
        "verify_bits": widths.target_weight,
        "draft_kv_bits": widths.draft_kv,
        "verify_kv_bits": widths.target_kv,
    }
    status = {name: "predicted" if scheme and name not in overridden else "input" for name in bits}
    ar_bytes = sum(float(x) for x in vars(steps.ar_bf16.work.stored).values())
    return {
        "schema_version": 1,
        "architecture": config.architecture,
        "device": device,
        "scheme": scheme,
        # Whether numbers of the user's own stand for a lossless code nobody knows.
        "lossless": None if overridden & {"verify_bits", "verify_kv_bits"} else widths.lossless,
        "workload": {
            "batch": config.batch,
            "context_tokens": config.context,
            "prompt_tokens": config.prompt_tokens,
        },
        "footprint": bits,
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
        "status": {"acceptance": "input", "footprint": status, "everything else": "predicted"},
        **kernel_notes(pricing.device, [scheme_footprint(widths)]),
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
