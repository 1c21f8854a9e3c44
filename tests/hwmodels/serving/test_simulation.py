"""An engine against queueing theory, against one in plain Python, and by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels.serving.simulation import (
    Requests,
    begin_serving,
    crossing_rate,
    latencies,
    poisson_requests,
    serve,
    serve_further,
    served_so_far,
    with_rate,
)
from hwmodels.serving.step_table import Engine, StepTable
from tests.hwmodels.serving.serving_witness import run

pytestmark = pytest.mark.device_matrix

KEY = jax.random.key(7)


def table_of(slots, lengths=1, step_s=1.0, sequence_s=0.0, context_s=0.0, token_s=0.0, draft_s=0.0):
    """Seconds that are linear in everything, so that interpolation is exact."""
    shape = np.meshgrid(np.arange(lengths), np.arange(slots + 1.0), [0.0, 4096.0], [0.0, 512.0], indexing="ij")
    length, batch, context, chunk = shape
    seconds = step_s + batch * (sequence_s + context_s * context) + token_s * chunk + draft_s * length
    return StepTable(jnp.asarray(seconds), jnp.asarray([0.0, 4096.0]), jnp.asarray([0.0, 512.0]))


def engine_of(slots, chunk=512.0, capacity=1e9, length=0, conditional=(0.0,)):
    return Engine(chunk, capacity, jnp.full(slots + 1, length), jnp.asarray(conditional), slots)


def test_one_slot_is_a_queue_of_deterministic_service():
    # M/D/1: the mean wait is rho D / (2 (1 - rho)), and the engine is busy rho of the time.
    service, count = 0.25, 6_000
    loads = jnp.array([0.3, 0.6])
    loads, seeds = jnp.meshgrid(loads, jnp.arange(4), indexing="ij")

    def waits(case):
        load, seed = case
        key = jax.random.fold_in(KEY, seed)
        requests = poisson_requests(key, count, rate_per_s=load / service, prompt_tokens=8.0, output_tokens=1.0)
        served = serve(requests, table_of(1, step_s=service), engine_of(1), key)
        seen = latencies(requests, served, warm_up=0.0)
        return jnp.mean(served.wait_s), seen.utilisation

    # One after the other: a mapped loop would copy the times of all requests in every step.
    found = jax.jit(lambda *cases: jax.lax.map(waits, cases))(loads.reshape(-1), seeds.reshape(-1))
    wait, busy = (values.reshape(loads.shape) for values in found)
    loads = loads[:, 0]
    expected = loads * service / (2 * (1 - loads))
    np.testing.assert_allclose(np.mean(wait, axis=1), expected, rtol=0.06)
    np.testing.assert_allclose(np.mean(busy, axis=1), loads, rtol=0.03)


CASES = {
    "batches": {"slots": 4, "chunk": 16.0, "capacity": 1e9},
    "few tokens fit": {"slots": 5, "chunk": 7.0, "capacity": 120.0},
    "drafts": {"slots": 3, "chunk": 50.0, "capacity": 1e9, "length": 2, "conditional": (1.0, 1.0)},
}


@pytest.mark.parametrize("case", CASES)
def test_an_engine_in_plain_python_finds_the_same(case, x64):
    settings, draw, count = CASES[case], np.random.default_rng(5), 40
    # Both crowded and idle times.
    arrivals = np.cumsum(draw.exponential(size=count) * np.where(np.arange(count) % 15 < 10, 2.0, 40.0))
    prompts, outputs = draw.integers(1, 60, count), draw.integers(1, 30, count)
    outputs[3] = 1
    engine = engine_of(**settings)
    shape = {"step_s": 0.7, "sequence_s": 0.03, "context_s": 2e-4, "token_s": 0.011, "draft_s": 0.4}
    length = settings.get("length", 0)
    table = table_of(engine.slots, length + 1, **shape)

    def seconds(batch, context, chunk):
        return 0.7 + batch * (0.03 + 2e-4 * context) + 0.011 * chunk + 0.4 * length

    expected = run(
        arrivals,
        prompts,
        outputs,
        seconds=seconds,
        slots=engine.slots,
        chunk_tokens=settings["chunk"],
        capacity=settings["capacity"],
        gain=length + 1,
    )
    requests = Requests(*(jnp.asarray(x, float) for x in (arrivals, prompts, outputs)))
    served = jax.jit(serve)(requests, table, engine, KEY)
    for found, when in zip((served.wait_s, served.ttft_s, served.request_s), expected, strict=True):
        np.testing.assert_allclose(found, when - arrivals, rtol=1e-9, atol=1e-9)
    # Little's law, of requests in slots: held slots over time are the times that requests spend in them.
    np.testing.assert_allclose(served.held_slots_s, np.sum(expected[2] - expected[0]), rtol=1e-9)
    assert float(served.end_s) == pytest.approx(expected[2].max())


def test_drafted_tokens_are_accepted_as_often_as_they_should_be():
    # One long request with a draft of 3: a cycle gains 1 + a + a b + a b c tokens on average.
    conditional = (0.9, 0.6, 0.5)
    output, slots = 6001.0, 2
    requests = Requests(jnp.zeros(1), jnp.ones(1), jnp.full(1, output))
    table = table_of(slots, lengths=4)
    served = serve(requests, table, engine_of(slots, length=3, conditional=conditional), KEY)
    cycles = float(served.steps) - 1.0
    assert (output - 1) / cycles == pytest.approx(1 + 0.9 + 0.54 + 0.27, rel=0.02)


def test_steps_of_milliseconds_count_in_full_on_a_clock_of_years():
    # Two requests that find an empty engine, 3e7 s apart, where single precision has steps of 2 s.
    requests = Requests(jnp.array([0.0, 3e7]), jnp.array([8.0, 8.0]), jnp.array([3.0, 3.0]))
    served = jax.jit(serve)(requests, table_of(2, step_s=0.007), engine_of(2), KEY)
    np.testing.assert_allclose(served.ttft_s, 0.007, rtol=1e-6)
    np.testing.assert_allclose(served.request_s, 0.021, rtol=1e-6)
    assert float(served.busy_s) == pytest.approx(0.042, rel=1e-6)


def few_requests(count):
    requests = poisson_requests(KEY, count, rate_per_s=1.0, prompt_tokens=40.0, output_tokens=9.0, output_variation=0.5)
    return requests, table_of(3, step_s=0.05, token_s=0.001), engine_of(3, chunk=50.0)


def test_runs_of_different_lengths_are_mapped_as_each_alone():
    requests, table, engine = few_requests(61)
    rates = jnp.array([0.2, 40.0])
    alone = jax.jit(lambda rate: serve(with_rate(requests, rate), table, engine, KEY))
    mapped = jax.jit(jax.vmap(alone))(rates)
    assert abs(int(mapped.steps[0] - mapped.steps[1])) > 20  # one stands still while the other goes on
    jax.tree.map(np.testing.assert_array_equal, mapped, jax.tree.map(lambda *x: jnp.stack(x), *map(alone, rates)))


def test_stops_in_between_change_nothing():
    requests, table, engine = few_requests(900)
    whole = jax.jit(serve)(requests, table, engine, KEY)
    further = jax.jit(lambda state: serve_further(state, requests, table, engine, KEY, steps=500))
    state, done = begin_serving(requests, engine), [0]
    while done[-1] < 900:
        state = further(state)
        done.append(int(state.done))
    assert len(done) > 4
    assert np.all(np.diff(done) > 0)
    jax.tree.map(np.testing.assert_array_equal, served_so_far(state), whole)


def test_where_a_draft_stops_paying():
    rates = np.array([1.0, 2.0, 4.0])
    # Twice as fast at 2, twice as slow at 4: equal in the middle of the two logarithms.
    assert crossing_rate(rates, np.ones(3), np.array([0.5, 0.5, 2.0])) == pytest.approx(8**0.5)
    assert crossing_rate(rates, np.ones(3), np.array([0.5, 0.5, 0.9])) is None
    assert crossing_rate(rates, np.ones(3), np.array([1.1, 1.2, 1.3])) is None
    assert crossing_rate(rates, np.ones(3), np.array([0.5, 1.2, 0.9])) is None  # it pays again beyond
    assert crossing_rate(rates, np.ones(3), np.array([1.1, 0.5, 0.9])) is None
    assert crossing_rate(rates, np.ones(3), np.array([1.1, 0.5, 1.3])) is None  # and not from the lowest rate on
