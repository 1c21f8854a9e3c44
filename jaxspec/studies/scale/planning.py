"""Prices of plans: samples sharing a prompt, accuracy against budget, and the same rows used for drafted tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float

from hwmodels import (
    Architecture,
    Case,
    CycleCost,
    Device,
    DraftCost,
    Footprint,
    Workload,
    chain_plan,
    price,
    price_steps,
    tokens_per_cycle,
)
from hwmodels.analysis.uncertainty.cycle_errors import LogNormal, answer_times, cycle_numbers
from hwmodels.analysis.uncertainty.kernel_errors import known_scatter, times_have_errors
from hwmodels.network.operators import decode_step, prefill_step, verify_step
from hwmodels.numerics.fast_compile import jit_fast_compile
from hwmodels.numerics.scalars import as_float
from hwmodels.parallel.group import held_share
from hwmodels.step.capacity import held_bytes
from hwmodels.step.priced_steps import PricedStep
from jaxspec.results import Quantity, given, measured, predicted
from jaxspec.runs.stages import Arrays
from jaxspec.scaling.estimators import (
    DEVIATES,
    best_of_n_rate,
    longest_of_batch,
    longest_of_n,
    majority_rate,
    mean_and_error,
    pass_at_n,
    rate_interval,
)
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.studies.engine_pricing import engine_scatter, kind_of_draft
from jaxspec.studies.feasibility import capacity_bytes
from jaxspec.studies.headline_intervals import interval_ends
from jaxspec.studies.scale.config import ScaleConfig
from jaxspec.studies.scale.result import Chosen, CurvePoint, Exchange, ExchangeEnds, PlanEnds, PlanRow
from jaxspec.studies.scale.stages import ScaleStages
from jaxspec.studies.sweep.pareto import is_pareto


@struct.dataclass
class Loads:
    """Plans in numbers, leaves " plan".

    Attributes:
        batch: problems. samples: of each.
        passes: one after the other. judged: tokens of a sample that a round of scores reads. rounds: of scores; 0: no judge.
    """

    batch: Float[Array | np.ndarray, " plan"]
    samples: Float[Array | np.ndarray, " plan"]
    passes: Float[Array | np.ndarray, " plan"]
    judged: Float[Array | np.ndarray, " plan"]
    rounds: Float[Array | np.ndarray, " plan"]


class Costs(NamedTuple):
    """Of plans, " plan"; energy None where the device's is not known.

    Attributes:
        numbers: total_s, step_s, prefill_s and judge_s with the errors of kernels; none on a device that is not calibrated.
    """

    step_s: Any
    prefill_s: Any
    judge_s: Any
    energy_j: Any
    held_bytes: Any
    numbers: dict[str, LogNormal]


def shared_tokens(prompt: Any, *, batch: Any, samples: Any) -> Any:
    """Tokens that all sequences would have to share for the cache to hold each problem's prompt once: "*b".

    Of one problem these are the prompt. Of B problems with N samples each, B prompts are held and not B N: as many rows as
    B N sequences hold that share S tokens, with S (B N - 1) = B (N - 1) prompt.
    """
    sequences = batch * samples
    return prompt * batch * (samples - 1.0) / jnp.maximum(sequences - 1.0, 1.0)


@jit_fast_compile
def price_plans(
    device: Device,
    architecture: Architecture,
    judge: Architecture | None,
    footprint: Footprint,
    prompt: Float[Array, ""],
    loads: Loads,
) -> Costs:
    """Time of a step and of prefills, energy in all, bytes held at the end.

    Args:
        judge: architecture of the network that judges, stored like the other; None: no plan has one.
        prompt: its tokens.
    """
    loads = jax.tree.map(jnp.asarray, loads)
    sequences = loads.batch * loads.samples
    shared = shared_tokens(prompt, batch=loads.batch, samples=loads.samples)
    prompts = prefill_step(Workload(batch=loads.batch, prompt_tokens=prompt), footprint=footprint)
    halfway = Workload(batch=sequences, context_tokens=prompt + loads.passes / 2.0, shared_tokens=shared)
    prefill, step = price_steps(device, architecture, [prompts, decode_step(halfway, footprint=footprint)])
    stored = {"weight_bits": footprint.target_weight_bits, "kv_bits": footprint.target_kv_bits}
    cache = {"context_tokens": prompt + loads.passes, "shared_tokens": shared}
    whole = Workload(batch=sequences)
    own, load = held_share(device.group, architecture, whole)
    held = held_bytes(own, batch=load.batch, **cache, **stored).total
    ones = jnp.ones_like(loads.passes)
    runs = [(ones, prefill), (loads.passes, step)]
    judge_s = jnp.zeros_like(loads.passes)
    if judge is not None:
        asked = jnp.minimum(loads.rounds, 1.0)
        read = verify_step(halfway, footprint=footprint, verify_tokens=jnp.maximum(loads.judged, 1.0))
        first, each = price_steps(device, judge, [prompts, read])
        judge_s = asked * first.cost.total_s + loads.rounds * each.cost.total_s
        runs += [(asked, first), (loads.rounds, each)]
        own, load = held_share(device.group, judge, whole)
        held = held + asked * held_bytes(own, batch=load.batch, **cache, **stored).total
    numbers = _numbers(device, {"total_s": runs, "step_s": [(ones, step)], "prefill_s": runs[:1], "judge_s": runs[2:]})
    return Costs(step.cost.total_s, prefill.cost.total_s, judge_s, _energy(runs), held, numbers)


def _numbers(device: Device, sums: dict[str, list[tuple[Any, PricedStep]]]) -> dict[str, LogNormal]:
    """Sums of steps, each as often as it runs, with their errors; leaves " plan". None without steps or errors."""
    if not times_have_errors(device):
        return {}

    def one(runs: list[tuple[Any, PricedStep]]) -> LogNormal:
        times = answer_times(device, plain=runs, answer=runs)
        return cycle_numbers(times, jnp.zeros(1), jnp.zeros((1, 0)))["cycle_s"]

    return {name: jax.vmap(one)(runs) for name, runs in sums.items() if runs}


def _energy(runs: list[tuple[Any, PricedStep]]) -> Array | None:
    """Of all runs of some steps; None where one of them has none."""
    total = jnp.asarray(0.0)
    for times, step in runs:
        if step.cost.energy is None:
            return None
        total = total + times * step.cost.energy.total_j
    return total


class Speculated(NamedTuple):
    """Chains of drafted tokens, "batch length"; draft length 0 is plain decoding.

    Attributes:
        numbers: speculation_s and speedup of whole answers with the errors of kernels and of the engine's cycles; none where
            nothing is known to err.
    """

    cycle_s: Any
    prefill_s: Any
    numbers: dict[str, LogNormal]


@jit_fast_compile
def price_speculation(
    case: Case,
    prompt: Float[Array, ""],
    batch: Float[Array, " batch"],
    passes: Float[Array, " batch"],
    lengths: Float[Array, " length"],
    tokens: Float[Array, " length_and_none"],
    scatter: Float[Array | np.ndarray, ""] | None,
) -> Speculated:
    """Seconds of a cycle with one sample of each problem.

    Args:
        passes: of plain decoding until the longest answer of a batch ends.
        lengths: draft lengths, 1 or more.
        tokens: per cycle of no draft and of these.
        scatter: of the engine's cycles, see `known_scatter`.
    """

    def one(problems: Array, passes: Array) -> Speculated:
        load = Workload(batch=problems, context_tokens=prompt + passes / 2.0, prompt_tokens=prompt)
        priced = price(dataclasses.replace(case, workload=load), chain_plan(lengths))
        (prefill,) = price_steps(case.device, case.architecture, [prefill_step(load, footprint=case.footprint)])
        plain = jnp.broadcast_to(priced.baselines.stored.cost.total_s, (1,))
        numbers = _speculated(case, priced, prefill, lengths, passes / tokens, passes, scatter)
        return Speculated(jnp.concatenate([plain, priced.total_s]), prefill.cost.total_s, numbers)

    return jax.vmap(one)(jnp.asarray(as_float(batch)), jnp.asarray(as_float(passes)))


def _speculated(
    case: Case,
    cycle: CycleCost,
    prefill: PricedStep,
    lengths: Float[Array, " length"],
    cycles: Float[Array, " length_and_none"],
    passes: Array,
    scatter: Array | np.ndarray | None,
) -> dict[str, LogNormal]:
    """Whole answers of no draft and of these lengths; none where nothing is known to err."""
    if scatter is None:
        return {}
    alone = cycle.baselines.stored
    plain = [(1.0, prefill), (passes, alone)]
    nothing, zero = jnp.zeros(1), jnp.zeros((1, 0))

    def one(length: Array, often: Array, verify: PricedStep, engine_s: Array) -> dict[str, LogNormal]:
        in_one = cycle.draft_runs(jnp.atleast_1d(length * case.draft.passes))
        drafting = [(often * runs[0], jax.tree.map(lambda leaf: leaf[0], step)) for runs, step in in_one]
        answer = [(1.0, prefill), *drafting, (often, verify)]
        # Cycles scatter, the prompt before them does not: of the whole answer it is, to first order, their share.
        cycles_s = sum((runs * step.cost.total_s for runs, step in drafting), often * (verify.cost.total_s + engine_s))
        of_answer = scatter * cycles_s / (cycles_s + prefill.cost.total_s)
        times = answer_times(case.device, plain=plain, answer=answer, engine_s=often * engine_s, scatter=of_answer)
        return cycle_numbers(times, nothing, zero)

    drafted = jax.vmap(one)(lengths, cycles[1:], cycle.verify, cycle.engine_s)
    none = cycle_numbers(answer_times(case.device, plain=plain, answer=plain), nothing, zero)
    return {
        name: jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), none[of], drafted[of])
        for name, of in (("speculation_s", "cycle_s"), ("speedup", "speedup_vs_stored_ar"))
    }


class Measured(NamedTuple):
    """A method with a budget, problem by problem.

    Attributes:
        rate: chance to be right. tokens: generated. passes: of the network. rounds: of scores.
        samples: of which `passes` is the longest; None: each problem takes what it took.
    """

    rate: Float[np.ndarray, " problem"]
    tokens: Float[np.ndarray, " problem"]
    passes: Float[np.ndarray, " problem"]
    rounds: Float[np.ndarray, " problem"]
    lengths: np.ndarray
    drawn: int

    def batch_passes(self, batch: int) -> float:
        """Passes until the longest of so many problems ends."""
        return longest_of_batch(self.lengths, self.drawn, batch)


def measured_method(stages: ScaleStages, model: str, method: str, samples: int) -> Measured:
    """What a method reaches and takes with a budget; of a budget of one, all methods are one sample."""
    samples_drawn = stages.samples(model)
    if method == "beam" and samples > 1:
        beams = stages.beams(model, samples)
        parts = (beams[name].astype(np.float64) for name in ("right", "tokens", "passes", "rounds"))
        return Measured(*parts, lengths=beams["passes"][:, None], drawn=1)
    rate = _rate(samples_drawn, method if samples > 1 else "pass-at-n", samples, stages)
    once = np.ones(len(rate))
    tokens, passes = samples * samples_drawn["spent"].mean(axis=1), longest_of_n(samples_drawn["spent"], samples)
    return Measured(rate, tokens, passes, once, lengths=samples_drawn["spent"], drawn=samples)


def _rate(drawn: Arrays, method: str, samples: int, stages: ScaleStages) -> np.ndarray:
    if method == "pass-at-n":
        return pass_at_n(drawn["right"], samples)
    if method == "best-of-n":
        return best_of_n_rate(drawn["score"], drawn["right"], samples)
    right = np.array([stages.problems.right_answer(i) for i in range(len(drawn["answer"]))])
    return majority_rate(drawn["answer"], right, samples, seed=stages.config.seed)


def curve_point(one: Measured, reached: Measured, samples: int) -> CurvePoint:
    """A point of a curve.

    Args:
        one: what a single sample reaches on the same problems.
    """
    rate, gain = reached.rate, reached.rate - one.rate
    low, high = rate_interval(rate)
    # Samples of a problem are counted in both: the difference is taken problem by problem.
    gain_mean, gain_error = mean_and_error(gain)
    spread = DEVIATES * gain_error
    return CurvePoint(
        samples=samples,
        accuracy=measured(*mean_and_error(rate)),
        low=measured(low),
        high=measured(high),
        gain=measured(gain_mean, gain_error),
        gain_low=measured(gain_mean - spread),
        gain_high=measured(gain_mean + spread),
        tokens=measured(*mean_and_error(reached.tokens)),
        passes=measured(*mean_and_error(reached.passes)),
    )


class Plan(NamedTuple):
    """A network, a method and a budget, measured."""

    model: str
    method: str
    samples: int
    attainable: bool
    measured: Measured
    point: CurvePoint

    @property
    def judged(self) -> bool:
        """Whether scores choose, of more than one sample."""
        return self.method in ("best-of-n", "beam") and self.samples > 1


def plan_rows(
    config: ScaleConfig,
    pricing: Case,
    plans: Sequence[Plan],
    *,
    footprint: Any,
    judge: Architecture | None,
    batches: Sequence[int],
) -> list[PlanRow]:
    """The plans of one network on a device at every batch, priced.

    Args:
        pricing: of the network's architecture. judge: see `price_plans`.
    """
    every = [(plan, batch) for batch in batches for plan in plans]
    passes = [plan.measured.batch_passes(batch) for plan, batch in every]
    rounds = [float(plan.measured.rounds.mean()) if judge is not None and plan.judged else 0.0 for plan, _ in every]
    tokens = [float(plan.measured.tokens.mean()) / plan.samples for plan, _ in every]
    columns = {
        "batch": [batch for _, batch in every],
        "samples": [plan.samples for plan, _ in every],
        "passes": passes,
        "judged": [own / max(often, 1.0) for own, often in zip(tokens, rounds, strict=True)],
        "rounds": rounds,
    }
    loads = Loads(**{name: np.asarray(column, np.float32) for name, column in columns.items()})
    prompt = jnp.asarray(float(config.context))
    priced = jax.device_get(price_plans(pricing.device, pricing.architecture, judge, footprint, prompt, loads))
    rows = []
    for i, (plan, batch) in enumerate(every):
        step, prefill, judging, held = (
            float(part[i]) for part in (priced.step_s, priced.prefill_s, priced.judge_s, priced.held_bytes)
        )
        rows.append(
            PlanRow(
                model=plan.model,
                method=plan.method,
                samples=plan.samples,
                batch=batch,
                attainable=plan.attainable,
                accuracy=plan.point.accuracy,
                low=plan.point.low,
                high=plan.point.high,
                passes=predicted(passes[i]),
                step_s=predicted(step),
                prefill_s=predicted(prefill),
                decode_s=predicted(passes[i] * step),
                judge_s=predicted(judging),
                total_s=predicted(prefill + passes[i] * step + judging),
                energy_j=predicted(None if priced.energy_j is None else float(priced.energy_j[i])),
                held_bytes=predicted(held),
                fits=predicted(held <= capacity_bytes(pricing.device)),
                intervals=_ends(priced.numbers, i),
            )
        )
    return rows


def _ends(numbers: dict[str, LogNormal], place: int) -> PlanEnds | None:
    """Intervals of a plan's times; None where nothing is known to err. Without a judge its time is 0, and has none."""
    if not numbers:
        return None
    known = {name: number for name, number in numbers.items() if float(number.value[place]) > 0}
    return PlanEnds(**{name: interval_ends(number, (place,)) for name, number in known.items()})


def with_fronts(rows: Sequence[PlanRow]) -> list[PlanRow]:
    """The same rows, those marked that no other of their batch beats: of those that fit, and that a user could follow."""
    marked = list(rows)
    for batch in dict.fromkeys(row.batch for row in rows):
        here = [i for i, row in enumerate(rows) if row.batch == batch]
        # Of equal plans one is listed: a budget of one is the same by every method.
        allowed = [i for i in here if rows[i].attainable and rows[i].fits.value]
        lost = [-rows[i].accuracy.known for i in allowed]
        for name, cost in (("fastest_of_its_accuracy", "total_s"), ("cheapest_of_its_accuracy", "energy_j")):
            costs = [getattr(rows[i], cost).number for i in here]
            if None in costs:
                continue
            paid = np.array([getattr(rows[i], cost).known for i in allowed], float)
            front = {i for i, keep in zip(allowed, is_pareto(paid, np.array(lost, float)), strict=True) if keep}
            for i in here:
                marked[i] = dataclasses.replace(marked[i], **{name: predicted(i in front)})
    return marked


def most_accurate(rows: Sequence[PlanRow], batch: int) -> PlanRow | None:
    """The plan with the highest accuracy that a user could follow and that fits, of equal ones the fastest."""
    allowed = [row for row in rows if row.batch == batch and row.attainable and row.fits.value]
    return max(allowed, key=lambda row: (row.accuracy.known, -row.total_s.known), default=None)


def cheapest(rows: Sequence[PlanRow], accuracy: float, batch: int) -> Chosen:
    """The plans of least time and of least energy that reach an accuracy, by the estimates themselves."""
    reach = [
        row
        for row in rows
        if row.batch == batch and row.attainable and row.fits.value and row.accuracy.known >= accuracy
    ]
    priced = [row for row in reach if row.energy_j.number is not None]
    return Chosen(
        accuracy=given(accuracy),
        by_time=min(reach, key=lambda row: row.total_s.known, default=None),
        by_energy=min(priced, key=lambda row: row.energy_j.known, default=None),
    )


def all_positions(conditional: Sequence[float], longest: int) -> list[float]:
    """Acceptance by position up to the longest draft; beyond those that are known, as at the last of them.

    Args:
        conditional: by position, or one number for all.
    """
    known = [0.0 if np.isnan(chance) else float(chance) for chance in conditional]
    return (known + known[-1:] * longest)[: max(longest, 1)]


def exchange_rows(
    config: ScaleConfig,
    pricing: Case,
    rows: Sequence[PlanRow],
    *,
    footprint: Footprint,
    draft: DraftCost,
    conditional: Sequence[float],
) -> list[Exchange]:
    """For one network on a device: every budget at every batch.

    Args:
        rows: of this network.
        conditional: acceptance by position.
    """
    budgets, batches = [n for n in config.samples if n > 1], list(dict.fromkeys(row.batch for row in rows))
    if not budgets:
        return []
    # Drafts beyond those that a chain engine makes are priced at the whole width only.
    lengths = sorted({*range(1, min(2 * MAX_DRAFT_LENGTH, max(budgets) - 1) + 1), *(n - 1 for n in budgets)})
    gained = np.asarray(tokens_per_cycle(jnp.asarray(all_positions(conditional, lengths[-1]))), np.float64)
    tokens = np.concatenate([[1.0], gained[np.array(lengths) - 1]])
    plain = {batch: _first(rows, batch, 1) for batch in batches}
    passes = np.array([plain[batch].passes.known for batch in batches])
    priced = jax.device_get(
        price_speculation(
            dataclasses.replace(pricing, footprint=footprint, draft=draft),
            jnp.asarray(float(config.context)),
            jnp.asarray(batches, float),
            jnp.asarray(passes, float),
            jnp.asarray(lengths, float),
            jnp.asarray(tokens, jnp.float32),
            known_scatter(pricing.device, engine_scatter(config.engine, kind_of_draft(draft), device=pricing.device)),
        )
    )
    result = []
    for i, batch in enumerate(batches):
        seconds = float(priced.prefill_s[i]) + passes[i] * np.asarray(priced.cycle_s[i], np.float64) / tokens
        for budget in budgets:
            allowed = [j for j, length in enumerate([0, *lengths]) if length < budget]
            best = min(allowed, key=lambda j: seconds[j])
            one, sampled = plain[batch], _best(rows, batch, budget)
            row = _row(one, sampled, budget, [0, *lengths][best], float(tokens[best]), float(seconds[best]))
            result.append(dataclasses.replace(row, intervals=_exchange_ends(priced.numbers, (i, best))))
    return result


def _exchange_ends(numbers: dict[str, LogNormal], at: tuple[int, int]) -> ExchangeEnds | None:
    """None where nothing is known to err, as of plain decoding where cycles alone were measured."""
    if not any(float(number.log_deviation[at]) > 0 for number in numbers.values()):
        return None
    return ExchangeEnds(**{name: interval_ends(number, at) for name, number in numbers.items()})


def _first(rows: Sequence[PlanRow], batch: int, samples: int) -> PlanRow:
    return next(row for row in rows if (row.batch, row.samples) == (batch, samples))


def _best(rows: Sequence[PlanRow], batch: int, samples: int) -> PlanRow | None:
    """The attainable plan with the highest accuracy, of equal ones the fastest.

    Of those that fit; where not even one sample does, of all, as a larger memory would have them.
    """
    fits = _first(rows, batch, 1).fits.value
    here = [row for row in rows if (row.batch, row.samples) == (batch, samples) and row.attainable]
    here = [row for row in here if row.fits.value or not fits]
    return max(here, key=lambda row: (row.accuracy.known, -row.total_s.known), default=None)


def _row(one: PlanRow, sampled: PlanRow | None, budget: int, length: int, tokens: float, seconds: float) -> Exchange:
    accuracy_one, plain_s = one.accuracy.known, one.total_s.known
    drafted_right = _over(seconds, accuracy_one)
    row = {
        "model": one.model,
        "batch": one.batch,
        "rows": budget,
        "plain_s": one.total_s,
        "accuracy_one": measured(accuracy_one),
        "draft_length": predicted(length),
        "tokens_per_cycle": predicted(tokens),
        "speculation_s": predicted(seconds),
        "speedup": predicted(plain_s / seconds),
        "speculation_right_s": predicted(drafted_right),
    }
    if sampled is None:
        only: Quantity[str] = predicted(None if drafted_right is None else "speculation")
        return Exchange(**row, better=only)
    sampled_right = _over(sampled.total_s.known, sampled.accuracy.known)
    known = {"speculation": drafted_right, "sampling": sampled_right}
    times = {name: value for name, value in known.items() if value is not None}
    better: Quantity[str] = predicted(min(times, key=times.__getitem__) if times else None)
    return Exchange(
        **row,
        method=sampled.method,
        sampling_s=sampled.total_s,
        slowdown=predicted(sampled.total_s.known / plain_s),
        accuracy=measured(sampled.accuracy.known),
        gain=measured(sampled.accuracy.known - accuracy_one),
        sampling_right_s=predicted(sampled_right),
        better=better,
    )


def _over(seconds: float, accuracy: float) -> float | None:
    return seconds / accuracy if accuracy > 0 else None
