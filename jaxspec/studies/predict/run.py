"""`jaxspec predict`: shapes, device, scheme and acceptance in; times, energy, memory and sensitivities out. Runs no network."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import hwmodels
from hwmodels import Architecture, Case, SpeculationResult
from hwmodels.analysis.design_point import (
    DesignPoint,
    Steps,
    changed_trees,
    changes_by_name,
    design_page,
    elasticities,
    leaf_names,
    page_steps,
)
from hwmodels.analysis.remarks import launch_remarks
from hwmodels.analysis.uncertainty.cycle_errors import LogNormal, chain_numbers, conditional_errors
from hwmodels.analysis.uncertainty.kernel_errors import step_interval
from hwmodels.network.architecture import UNCOMPRESSED_BITS
from hwmodels.numerics.fast_compile import run_on_host
from hwmodels.speculation.chains import PricedChains
from hwmodels.speculation.draft_cost import COMPRESSED_COPY
from hwmodels.step.step_cost import seconds_by_part
from jaxspec.compress.footprint import uniform
from jaxspec.compress.footprint_table import HEAD_WIDTHS, WIDTHS, expected_widths
from jaxspec.compress.schemes import find_scheme
from jaxspec.errors import InputError
from jaxspec.report.assumptions import priced_facts
from jaxspec.results import Quantity, given, predicted
from jaxspec.results.network_results import CycleEnds, HeadlineIntervals
from jaxspec.results.records import finite, quantities
from jaxspec.runs.inputs import InputWatch
from jaxspec.settings import build_config, expect, knob_values
from jaxspec.settings.draft_kinds import SELF
from jaxspec.settings.knobs import EXPERT_POOL
from jaxspec.settings.schemes import scheme_facts
from jaxspec.studies.advise.inputs import bits_beside, named_draft
from jaxspec.studies.engine_pricing import (
    engine_scatter,
    engine_used,
    kind_of_draft,
    noted,
    placed,
    placement_name,
    with_experts,
)
from jaxspec.studies.given_acceptance import GivenRates, rates_or_known
from jaxspec.studies.headline_intervals import covered_by, cycle_ends, held_intervals
from jaxspec.studies.measured.pricing import longest_text, resolve_pricing
from jaxspec.studies.predict.config import PredictConfig
from jaxspec.studies.predict.result import (
    BatchRow,
    DecoderNeeds,
    ExpertUse,
    GivenAcceptance,
    LengthRow,
    PredictedWorkload,
    PredictResult,
    ReadWidths,
    StepTotals,
)
from jaxspec.studies.release import (
    draft_notes,
    layer_bits,
    no_narrower_draft,
    priced_form,
    release_in_words,
    release_notes,
    stored_form,
    with_release_kernels,
)

#: Width -> name in settings and results; the head's have no setting.
_NAMES = {
    "draft_weight_bits": "draft_bits",
    "target_weight_bits": "verify_bits",
    "draft_kv_bits": "draft_kv_bits",
    "target_kv_bits": "verify_kv_bits",
    "draft_head_bits": "draft_head_bits",
    "target_head_bits": "verify_head_bits",
}


def with_draft(case: Case, config: PredictConfig) -> Case:
    """The case with the draft that is named, at its own widths; as it is for the target's compressed copy."""
    if config.draft == SELF:
        return case
    draft = named_draft(config, case.architecture)
    own = bits_beside(config, case.footprint.target_weight_bits)
    return dataclasses.replace(case, draft=draft, footprint=dataclasses.replace(case.footprint, draft_weight_bits=own))


def given_widths(config: PredictConfig) -> dict[str, float]:
    """Widths that the user gives."""
    return {width: getattr(config, _NAMES[width]) for width in WIDTHS if getattr(config, _NAMES[width]) is not None}


def read_widths(config: PredictConfig, architecture: Architecture) -> dict[str, float]:
    """The scheme's widths, and the head's where it compresses the head; numbers that the user gives win.

    Of a release's form they are means over the layers' matrices, whose kinds have widths of their own.
    """
    form = priced_form(config)
    if form is None:
        widths = expected_widths(find_scheme(config.scheme), knob_values(config))
    else:
        layers, kv = layer_bits(form, architecture), UNCOMPRESSED_BITS if form.kv_bits is None else form.kv_bits
        widths = dict.fromkeys(WIDTHS, layers) | dict.fromkeys(("draft_kv_bits", "target_kv_bits"), kv)
        if form.weight_bits["lm_head"] != UNCOMPRESSED_BITS:
            widths |= dict.fromkeys(HEAD_WIDTHS, form.weight_bits["lm_head"])
    if config.draft != SELF:
        own = stored_form(config.draft) if os.path.exists(config.draft) else None
        bits = UNCOMPRESSED_BITS if own is None else layer_bits(own, architecture)
        widths |= {"draft_weight_bits": bits, "draft_kv_bits": UNCOMPRESSED_BITS}
        if "draft_head_bits" in widths:
            widths["draft_head_bits"] = UNCOMPRESSED_BITS
    return widths | given_widths(config)


@flax.struct.dataclass
class KnownErrors:
    """What is known to err beside kernels.

    Attributes:
        acceptance: standard errors, or of a trace a factor of their covariance.
        scatter: of the engine's cycles, a logarithm's.
    """

    acceptance: Float[Array | np.ndarray, " position"] | Float[Array | np.ndarray, "position cause"]
    scatter: Float[Array | np.ndarray, ""]


def known_errors(
    config: PredictConfig, pricing: Case, conditional: list[float], rates: GivenRates
) -> KnownErrors | None:
    """Errors that a prediction inherits; None where nothing is known to err.

    Args:
        conditional: `rates` of all positions.
    """
    error = np.zeros(len(conditional), np.float32)
    if rates.error is not None:
        error = rates.error.astype(np.float32)
    elif rates.cycles is not None:
        error = np.asarray(conditional_errors(jnp.asarray(conditional), rates.cycles))
    scatter = engine_scatter(config.engine, kind_of_draft(pricing.draft), device=pricing.device)
    if not covered_by(pricing.device, acceptance=bool(np.any(error != 0)), scatter=scatter):
        return None
    return KnownErrors(error, np.asarray(scatter, np.float32))


def chain_intervals(
    pricing: Case, chains: PricedChains, acceptance: hwmodels.Acceptance, errors: KnownErrors | None, *, batch: Any
) -> dict[str, LogNormal]:
    """Main numbers with their errors at every draft length, leaves "gamma"; empty where nothing is known to err."""
    if errors is None:
        return {}
    numbers = lambda length: chain_numbers(
        pricing.device,
        chains.cycle,
        length,
        jnp.asarray(acceptance.conditional),
        error=jnp.asarray(errors.acceptance),
        batch=batch,
        passes=pricing.draft.passes,
        scatter=errors.scatter,
    )
    return jax.vmap(numbers)(chains.result.draft_lengths)


def headline(
    errors: KnownErrors | None, pricing: Case, numbers: dict[str, LogNormal], length: int
) -> HeadlineIntervals | None:
    """Intervals of the main numbers.

    Args:
        numbers: at every draft length.
        length: the best one.
    """
    if errors is None:
        return None
    counted = bool(np.any(np.asarray(errors.acceptance)[:length] != 0))
    covers = covered_by(pricing.device, acceptance=counted, scatter=float(errors.scatter) if length else 0.0)
    return held_intervals(numbers, covers, (length,))


def row_ends(numbers: dict[str, LogNormal], *at: int) -> CycleEnds | None:
    """Intervals of a row of a table; None where nothing is known to err."""
    ends: dict[str, Any] = cycle_ends(numbers, at)
    return CycleEnds(**ends) if ends else None


def step_intervals(device: hwmodels.Device, steps: dict[str, Any]) -> Quantity[dict] | None:
    """Ends of the interval of each step's time; None for a device whose kernels nobody measured."""
    intervals = {name: step_interval(device, step) for name, step in steps.items()}
    known = {name: dataclasses.asdict(one) for name, one in intervals.items() if one is not None}
    return predicted(known) if known else None


def length_rows(result: SpeculationResult, numbers: dict[str, LogNormal]) -> list[LengthRow]:
    """A row for every draft length.

    Args:
        numbers: with their errors, leaves "gamma"; empty where nothing is known to err.
    """
    names = ("tokens_per_cycle", "cycle_s", "speedup_vs_bf16_ar", "speedup_vs_stored_ar")
    return [
        LengthRow(
            draft_length=given(length),
            intervals=row_ends(numbers, length),
            **quantities(predicted, result, *names, of=lambda column, length=length: float(column[length])),
        )
        for length in range(len(result.draft_lengths))
    ]


def batch_rows(batches: Sequence[int], points: DesignPoint, numbers: dict[str, LogNormal]) -> list[BatchRow]:
    """A row for every batch, at its best draft length.

    Args:
        points: leaves "batch".
        numbers: likewise, as of `length_rows`.
    """
    names = ("speedup_vs_bf16_ar", "speedup_vs_stored_ar", "tokens_per_s")
    return [
        BatchRow(
            batch=given(batch),
            draft_length=predicted(int(points.draft_length[place])),
            **quantities(predicted, points, *names, of=lambda column, place=place: float(column[place])),
            fits=predicted(bool(points.held_bytes[place] <= points.capacity_bytes[place])),
            intervals=row_ends(numbers, place),
        )
        for place, batch in enumerate(batches)
    ]


def step_totals(step: hwmodels.PricedStep, device: hwmodels.Device) -> StepTotals:
    """Totals of a step on a device: work, what limits it, energy by component."""
    work, time, energy = step.work, step.cost, step.cost.energy
    components, total = None, lambda parts: float(parts.sum())
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
        **quantities(predicted, time, "compute_s", "memory_s", "decoding_s", of=total),
        on_chip_s=predicted(None if device.on_chip_path is None else float(time.on_chip_s.sum())),
        encoding_s=predicted(None if device.encoder is None else float(time.encoding_s)),
        **quantities(predicted, work, "flops", "weight_bytes", "kv_bytes", "activation_bytes", "launches", of=total),
        memory_energy_j=predicted(None if time.memory_j is None else [float(x) for x in time.memory_j]),
        energy_j=predicted(components),
    )


def expert_use(steps: Steps, pricing: Case) -> ExpertUse | None:
    """Which experts the steps read; None for a network without."""
    if not float(pricing.architecture.num_experts):
        return None
    named = {name: getattr(steps, name) for name in ("ar_stored", "draft", "verify")}
    is_expert = np.isin(hwmodels.OPERATORS, hwmodels.EXPERT_OPERATORS)

    def near(step: hwmodels.PricedStep) -> float | None:
        # Activations lie in the first memory whatever the placement. A draft may have no experts.
        first = step.cost.traffic_bytes[is_expert, 0] - step.work.activation_bytes[is_expert]
        read = float(step.work.weight_bytes[is_expert].sum())
        return float(first.sum()) / read if read else None

    reads = {name: step.work.experts for name, step in named.items()}
    return ExpertUse(
        draft_pool=predicted(float(reads["draft"].pool)),
        touched=predicted({name: float(read.touched) for name, read in reads.items()}),
        read_from_first_memory=predicted({name: near(step) for name, step in named.items()}),
    )


def decoder_needs(pricing: Case, steps: Steps) -> DecoderNeeds | None:
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


#: Batches at which "speculate or not" is asked.
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


#: Predicted numbers with their errors, by name.
_Numbers = dict[str, LogNormal]


#: Smoothing of elasticities, so that two limits that are nearly equal both show.
_SENSITIVITY_TEMPERATURE = 0.02


def predict(
    config: PredictConfig | None = None, *, checked: Callable[[], object] = lambda: None, **settings: Any
) -> list[PredictResult]:
    """One result per device; with several batches or contexts one for each pair of them, contexts in turn.

    Args:
        config: what to predict; or
        checked: called when all inputs are known to be good, before the first device is priced.
        settings: the fields of `PredictConfig` by name, with its defaults: predict(acceptance=0.9, device="l40s").
            acceptance is alpha_token, or one conditional per position; accepted_per_cycle, acceptance_cumulative and
            acceptance_log take what engines print instead; the widths of the scheme follow from its
            knobs; draft_bits and verify_bits are per weight of the layers' matrices, embeddings and norms are read at
            16, and so is the head unless the scheme compresses it.
    Raises:
        InputError: a name, a number or a file that cannot be used, or changes meanwhile; settings that exclude one another.
    """
    if config is not None and settings:
        raise InputError(f"a configuration came, and {', '.join(sorted(settings))} beside it; give one or the other")
    config = build_config(PredictConfig, settings, given=_given(settings)) if config is None else config
    expect(PredictConfig, config)
    watch = InputWatch(config)
    # Every name is resolved before the first width is counted and the first device is priced.
    kernels = {name: with_release_kernels(config, name) for name in config.device}
    cases = {name: placed(resolve_pricing(kernels[name], name, None), config, name) for name in config.device}
    share = knob_values(config).get(EXPERT_POOL.name)
    widths = read_widths(config, next(iter(cases.values())).architecture)
    read = uniform(**widths)
    cases = {
        name: with_draft(
            with_experts(dataclasses.replace(case, footprint=read), config, config.architecture, share), config
        )
        for name, case in cases.items()
    }
    rates = rates_or_known(config, config.kind, longest=config.max_draft_length)
    conditional = rates.of_positions(config.max_draft_length)
    digests = watch.digest()
    watch.compare_with(digests)
    checked()
    results = []
    for name, case in cases.items():
        errors = known_errors(config, case, conditional, rates)
        for context, batch in itertools.product(config.context, config.batch):
            point = case.at(batch=float(batch), context_tokens=float(context))
            priced = _price(point, np.asarray(conditional, np.float32), errors)
            result = _result(kernels[name], name, widths, rates, priced, point, errors)
            results.append(dataclasses.replace(result, inputs=digests))
    watch.check()  # titles and sources of devices are read last
    return results


def _given(settings: dict[str, Any]) -> list[str]:
    return [name for name, value in settings.items() if value is not None]


@dataclasses.dataclass(frozen=True)
class _Priced:
    result: hwmodels.SpeculationResult
    point: DesignPoint
    ar_bf16_held_bytes: float
    steps: Steps
    numbers: _Numbers  # with their errors, "gamma"; empty where nothing is known to err
    elasticity: dict[str, dict[str, np.ndarray]]
    by_batch: DesignPoint
    numbers_by_batch: _Numbers  # likewise, "batch", at the best draft length of each


def _price(case: Case, conditional: np.ndarray, errors: KnownErrors | None) -> _Priced:
    device, counted = case.device, _counted(case.device)
    chains, points, numbers, ar_bytes = _points(case, conditional, errors)
    slopes = _slopes(case, conditional)
    rows = 1 + len(_BATCHES)
    first, by_batch, changes = (
        partial(jax.tree.map, lambda leaf, rows=rows: leaf[rows]) for rows in (0, slice(1, rows), slice(rows, None))
    )
    elasticity = slopes
    if counted:
        logs = jax.tree.map(np.log, _metrics(device, changes(points)))
        changed = changes_by_name(logs, counted)
        elasticity = {name: slopes[name] | changed[name] for name in slopes}
    length = points.draft_length
    steps = page_steps(first(chains), int(length[0]))
    if not float(case.draft.passes):  # a lookup runs no network
        steps = dataclasses.replace(steps, draft=jax.tree.map(np.zeros_like, steps.draft))
    at_best = jax.tree.map(lambda leaf: leaf[np.arange(rows), length[:rows]], numbers)
    return _Priced(
        result=first(chains.result),
        point=first(points),
        ar_bf16_held_bytes=ar_bytes,
        steps=steps,
        numbers=first(numbers),
        elasticity=elasticity,
        by_batch=by_batch(points),
        numbers_by_batch=by_batch(at_best),
    )


def _counted(device: hwmodels.Device) -> list[str]:
    """Numbers of the device that tiles and waves are counted by: a derivative at one of the steps says nothing of the next."""
    return [name for name in leaf_names(device) if name.startswith("matrix_unit.")]


def _metrics(device: hwmodels.Device, point: DesignPoint) -> dict[str, Any]:
    """Results whose elasticities are shown."""
    names = ["speedup_vs_bf16_ar", "tokens_per_s"] + ["energy_per_token_j"] * device.knows_energy
    return {name: getattr(point, name) for name in names}


@run_on_host
def _points(
    case: Case, conditional: jax.Array, errors: KnownErrors | None
) -> tuple[PricedChains, DesignPoint, _Numbers, jax.Array]:
    """Chains and design points of the workload's own batch, of `_BATCHES` and of changed devices, in one map; errors of the
    first two at every draft length; bytes that 16-bit decoding holds."""
    acceptance, counted = hwmodels.Acceptance(conditional), _counted(case.device)
    own = [case.workload.batch, *_BATCHES]
    batches = jnp.asarray([*own, *own[:1] * (2 * len(counted))], conditional.dtype)
    device, axis = case.device, None
    if counted:
        joined = lambda leaf, more: jnp.concatenate([jnp.full(len(own), leaf, more.dtype), more])
        device, axis = jax.tree.map(joined, case.device, changed_trees(case.device, counted)), 0

    def page(device: hwmodels.Device, batch: jax.Array) -> tuple[PricedChains, DesignPoint]:
        return design_page(dataclasses.replace(case.at(batch=batch), device=device), acceptance)

    chains, points = jax.vmap(page, (axis, 0))(device, batches)
    numbers = {}
    if errors is not None:
        intervals = lambda chains, batch: chain_intervals(case, chains, acceptance, errors, batch=batch)
        numbers = jax.vmap(intervals)(jax.tree.map(lambda leaf: leaf[: len(own)], chains), batches[: len(own)])
    plain = hwmodels.uniform_footprint(UNCOMPRESSED_BITS)
    return chains, points, numbers, dataclasses.replace(case, footprint=plain, draft=COMPRESSED_COPY).held_bytes


@run_on_host
def _slopes(case: Case, conditional: jax.Array) -> dict[str, dict[str, jax.Array]]:
    """Elasticities by derivatives."""

    def metrics(device: hwmodels.Device) -> dict[str, Any]:
        on_device = dataclasses.replace(case, device=device)
        _, point = design_page(on_device, hwmodels.Acceptance(conditional), temperature=_SENSITIVITY_TEMPERATURE)
        return _metrics(device, point)

    return elasticities(metrics, case.device)


def _result(
    config: PredictConfig,
    device: str,
    widths: dict[str, float],
    rates: GivenRates,
    priced: _Priced,
    pricing: Case,
    errors: KnownErrors | None,
) -> PredictResult:
    point, steps = priced.point, priced.steps
    named = {field.name: getattr(steps, field.name) for field in dataclasses.fields(steps)}
    ar_bytes = float(priced.ar_bf16_held_bytes)
    batch, context = int(pricing.workload.batch), int(pricing.workload.context_tokens)
    # Whether numbers of the user's own stand for a lossless code nobody knows.
    overridden = given_widths(config)
    open_question = any(width.startswith("target") for width in overridden)
    results: dict[str, Any] = {
        field.name: predicted(finite(getattr(point, field.name)))
        for field in dataclasses.fields(point)
        if field.name not in ("draft_length", "capacity_bytes", "area_m2")
    }
    read: dict[str, Any] = {
        _NAMES[width]: (given if width in overridden else predicted)(bits) for width, bits in widths.items()
    }
    return PredictResult(
        **priced_facts(device, config.architecture, pricing.architecture, config, config),
        draft=pricing.draft.statement,
        engine=engine_used(config.engine, device),
        scheme=given(config.scheme),
        release=release_in_words(config.architecture, config.scheme),
        lossless=None if open_question else _lossless(config.scheme),
        workload=PredictedWorkload(
            batch=given(batch), context_tokens=given(context), prompt_tokens=given(config.prompt_tokens)
        ),
        footprint=ReadWidths(**read),
        acceptance=GivenAcceptance(
            conditional=Quantity(rates.of_positions(config.max_draft_length), rates.status),
            source=rates.source,
            by_dataset=dict(rates.by_dataset),
        ),
        pays=predicted(int(point.draft_length) > 0),
        request_s=predicted(float(steps.prefill.cost.total_s + point.output_s)),
        draft_length=predicted(int(point.draft_length)),
        # Of the device's own data.
        capacity_bytes=given(float(point.capacity_bytes)),
        area_m2=(given if pricing.device.technology is None else predicted)(finite(point.area_m2)),
        **_bill(pricing.device),
        by_draft_length=length_rows(priced.result, priced.numbers),
        by_batch=batch_rows(_BATCHES, priced.by_batch, priced.numbers_by_batch),
        fits=predicted(bool(point.held_bytes <= point.capacity_bytes)),
        ar_bf16_held_bytes=predicted(ar_bytes),
        ar_bf16_fits=predicted(bool(ar_bytes <= point.capacity_bytes)),
        operators=predicted({name: seconds_by_part(step.cost) for name, step in named.items()}),
        intervals=headline(errors, pricing, priced.numbers, int(point.draft_length)),
        step_intervals=step_intervals(pricing.device, named),
        steps={name: step_totals(step, pricing.device) for name, step in named.items()},
        decoders=decoder_needs(pricing, priced.steps),
        placement=placement_name(config, pricing),
        experts=expert_use(priced.steps, pricing),
        sensitivity=predicted(
            {
                metric: {leaf: float(value) for leaf, value in by_leaf.items() if abs(value) > 1e-6}
                for metric, by_leaf in priced.elasticity.items()
            }
        ),
        **_notes(config, device, pricing, priced, rates),
        **results,
    )


def _lossless(scheme: str) -> bool:
    facts = scheme_facts(scheme)
    return facts is not None and facts.lossless


def _notes(config: PredictConfig, device: str, pricing: Case, priced: _Priced, rates: GivenRates) -> dict[str, Any]:
    """The fields of `kernel_notes`, with remarks on the config.json, on acceptance, and on launches of steps so short."""
    load = pricing.workload
    about = release_notes(config.architecture, config.scheme)
    about += no_narrower_draft(config.scheme) if config.draft == SELF and config.draft_bits is None else []
    about += draft_notes(None if config.draft == SELF else config.draft)
    return noted(
        pricing.device,
        [pricing.footprint],
        config.engine,
        about=[*about, *rates.notes],
        steps=launch_remarks(pricing.device, priced.steps.ar_stored),
        named=device,
        batches=[load.batch],
        architecture=pricing.architecture,
        texts={config.architecture: float(longest_text(config))},
        held={f"batch {load.batch:.0f} at {load.context_tokens:,.0f} cached tokens": float(priced.point.held_bytes)},
    )


def _bill(device: hwmodels.Device) -> dict[str, Quantity[float]]:
    """Power and price of a device whose technology is known."""
    if device.technology is None:
        return {}
    bill = hwmodels.chip_bill(device)
    return {"power_w": predicted(finite(bill.power_w)), "price_usd": predicted(finite(bill.price_usd))}
