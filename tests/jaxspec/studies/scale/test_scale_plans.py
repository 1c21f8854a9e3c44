"""Plans on devices: their times beside those of the pricing path itself, fronts and cheapest plans by enumeration."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import (
    Case,
    DraftCost,
    Workload,
    baselines,
    catalog,
    chain_plan,
    price,
    price_steps,
    uniform_footprint,
)
from hwmodels.network.architecture import cached_rows
from hwmodels.network.operators import prefill_step
from hwmodels.step.capacity import held_bytes
from jaxspec.results import measured, predicted
from jaxspec.settings import build_config
from jaxspec.studies import ScaleConfig
from jaxspec.studies.scale.planning import (
    Measured,
    Plan,
    cheapest,
    exchange_rows,
    most_accurate,
    plan_rows,
    shared_tokens,
    with_fronts,
)
from jaxspec.studies.scale.result import CurvePoint, PlanRow

pytestmark = pytest.mark.study

FOOTPRINT = uniform_footprint(16.0)
PROMPT = 300.0
BATCHES = (1, 3)


@pytest.fixture(scope="module")
def pricing():
    device, shape = catalog.device("rtx-4090"), catalog.architecture("llama-3.2-1b")
    return Case(device=device, architecture=shape, workload=Workload())


@pytest.fixture(scope="module")
def config():
    settings = {"samples": "1,4", "context": 300, "batch": 1, "batches": "1,3", "acceptance": "0.8,0.5"}
    return build_config(ScaleConfig, settings)


def plan(method, samples, accuracy, *, rounds=1.0, attainable=True):
    lengths = np.tile(np.arange(10, 26), (2, 1))
    ones = np.ones(2)
    found = Measured(accuracy * ones, 20.0 * samples * ones, 25 * ones, rounds * ones, lengths, samples)
    point = CurvePoint(samples=samples, accuracy=measured(accuracy, 0.01), low=measured(0.0), high=measured(1.0))
    return Plan("m", method, samples, attainable, found, point)


PLANS = [
    plan("pass-at-n", 1, 0.2),
    plan("pass-at-n", 4, 0.5),
    plan("best-of-n", 4, 0.4),
    plan("beam", 4, 0.3, rounds=5),
]


@pytest.fixture(scope="module")
def rows(config, pricing):
    return plan_rows(config, pricing, PLANS, footprint=FOOTPRINT, judge=None, batches=BATCHES)


def test_one_problem_is_what_a_shared_prompt_costs(rows, pricing):
    for row, each in zip(rows, PLANS * 2, strict=True):
        assert (row.method, row.samples) == (each.method, each.samples)
    row = rows[1]
    passes = PLANS[1].measured.batch_passes(1)
    load = Workload(batch=4.0, context_tokens=PROMPT + passes / 2, shared_tokens=PROMPT, prompt_tokens=PROMPT)
    alone = dataclasses.replace(load, batch=1.0)

    def priced(device, shape):
        step = baselines(Case(device, shape, workload=load, footprint=FOOTPRINT)).stored.cost.total_s
        return step, price_steps(device, shape, [prefill_step(alone, footprint=FOOTPRINT)])[0].cost.total_s

    step, prefill = map(float, jax.jit(priced)(pricing.device, pricing.architecture))
    assert row.step_s.known == pytest.approx(step, rel=1e-5)
    assert row.prefill_s.known == pytest.approx(prefill, rel=1e-5)
    assert row.total_s.known == pytest.approx(prefill + passes * step, rel=1e-5)
    assert row.passes.known == passes
    held = held_bytes(
        pricing.architecture,
        batch=4.0,
        context_tokens=PROMPT + passes,
        shared_tokens=PROMPT,
        weight_bits=FOOTPRINT.target_weight_bits,
        kv_bits=16.0,
    )
    assert row.held_bytes.known == pytest.approx(float(held.total), rel=1e-6)
    assert row.fits.value
    assert row.energy_j.value is None


@pytest.mark.parametrize(("batch", "samples"), [(1, 1), (1, 7), (5, 1), (3, 4)])
def test_each_problem_holds_its_prompt_once(pricing, batch, samples):
    shared = shared_tokens(PROMPT, batch=float(batch), samples=float(samples))
    found = cached_rows(pricing.architecture, PROMPT + 20.0, batch=float(batch * samples), shared_tokens=shared)
    wanted = pricing.architecture.num_layers * (batch * PROMPT + batch * samples * 20.0)
    one = cached_rows(pricing.architecture, 1.0, batch=1.0) / pricing.architecture.num_layers
    assert float(found) == pytest.approx(float(wanted * one), rel=1e-5)


def row_of(accuracy, seconds, joules, *, fits=True, attainable=True, batch=1):
    return PlanRow(
        method="pass-at-n",
        samples=2,
        batch=batch,
        attainable=attainable,
        accuracy=measured(accuracy),
        total_s=predicted(seconds),
        energy_j=predicted(joules),
        fits=predicted(fits),
    )


MADE = [
    row_of(0.2, 1.0, 9.0),
    row_of(0.5, 2.0, 1.0),
    row_of(0.4, 3.0, 2.0),
    row_of(0.9, 1.5, 0.5, fits=False),
    row_of(0.8, 1.5, 0.5, attainable=False),
    row_of(0.5, 2.5, 0.9),
    row_of(0.1, 0.1, 0.1, batch=2),
]


def test_fronts_are_those_of_enumeration():
    allowed = [row for row in MADE if row.fits.value and row.attainable]
    for row in with_fronts(MADE):
        others = [other for other in allowed if other.batch == row.batch]
        for name, cost in (("fastest_of_its_accuracy", "total_s"), ("cheapest_of_its_accuracy", "energy_j")):
            own = getattr(row, cost).known, -row.accuracy.known
            better = any(
                (getattr(o, cost).known, -o.accuracy.known) != own
                and getattr(o, cost).known <= own[0]
                and o.accuracy.known >= -own[1]
                for o in others
            )
            assert getattr(row, name).value == (bool(row.fits.value) and row.attainable and not better)
    without = with_fronts([row_of(0.2, 1.0, None), row_of(0.5, 2.0, None)])
    assert [row.cheapest_of_its_accuracy.value for row in without] == [None, None]
    assert all(row.fastest_of_its_accuracy.value for row in without)


def test_the_cheapest_plan_for_an_accuracy():
    found = cheapest(MADE, 0.45, 1)
    assert (found.by_time, found.by_energy) == (MADE[1], MADE[5])
    assert cheapest(MADE, 0.2, 1).by_time == MADE[0]
    assert most_accurate(MADE, 1) == MADE[1]
    assert most_accurate(MADE[3:5], 1) is None
    none = cheapest(MADE, 0.7, 1)
    assert (none.by_time, none.by_energy, none.accuracy.value) == (None, None, 0.7)


def test_the_same_rows_for_drafted_tokens(config, pricing, rows):
    draft = DraftCost(passes=0.0)
    found = exchange_rows(config, pricing, rows, footprint=FOOTPRINT, draft=draft, conditional=[0.8, 0.5])
    assert [(row.batch, row.rows) for row in found] == [(1, 4), (3, 4)]
    row, plain, passes = found[0], rows[0], rows[0].passes.known
    load = Workload(batch=1.0, context_tokens=PROMPT + passes / 2, prompt_tokens=PROMPT)
    parts = {"footprint": FOOTPRINT, "draft": draft, "workload": load}
    gained = {1: 1.8, 2: 2.2, 3: 2.4}
    plans = chain_plan(jnp.asarray(list(gained), jnp.float32))
    cycles = jax.jit(lambda device, shape: price(Case(device, shape, **parts), plans).total_s)
    cycle_s = np.asarray(cycles(pricing.device, pricing.architecture), float)
    seconds = {n: plain.prefill_s.known + passes * s / gained[n] for n, s in zip(gained, cycle_s, strict=True)}
    best = min(seconds, key=lambda length: seconds[length])
    assert (row.draft_length.value, row.tokens_per_cycle.value) == (best, pytest.approx(gained[best]))
    assert row.speculation_s.known == pytest.approx(seconds[best], rel=1e-5)
    assert row.speedup.known == pytest.approx(plain.total_s.known / seconds[best], rel=1e-5)
    assert (row.method, row.accuracy.value, row.accuracy_one.value) == ("pass-at-n", 0.5, 0.2)
    assert row.slowdown.known == pytest.approx(rows[1].total_s.known / plain.total_s.known)
    right = {"speculation": seconds[best] / 0.2, "sampling": rows[1].total_s.known / 0.5}
    assert (row.speculation_right_s.known, row.sampling_right_s.known) == pytest.approx(tuple(right.values()))
    assert row.better.value == min(right, key=lambda name: right[name])
    nothing = [dataclasses.replace(r, accuracy=measured(0.0)) for r in rows]
    found = exchange_rows(config, pricing, nothing, footprint=FOOTPRINT, draft=draft, conditional=[0.0])
    assert {(row.draft_length.value, row.speedup.value, row.better.value) for row in found} == {(0, 1.0, None)}
