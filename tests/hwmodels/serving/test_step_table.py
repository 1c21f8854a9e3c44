"""Priced steps are those of the one pricing path."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import Case, DraftCost, Workload, catalog, chain_plan, price, uniform_footprint
from hwmodels.network.operators import prefill_step
from hwmodels.serving.step_table import StepTable, priced_table, step_seconds
from hwmodels.speculation.chains import serving_cycle
from hwmodels.step.priced_steps import price_steps

pytestmark = pytest.mark.device_matrix

DEVICE, TARGET = catalog.device("rtx-4090"), catalog.architecture("llama-3.1-8b")
SMALL = DraftCost(architecture=catalog.architecture("llama-3.2-1b"))
WIDTHS = uniform_footprint(9.0)


@pytest.fixture(scope="module")
def table():
    return priced_table(
        Case(DEVICE, TARGET, Workload(), WIDTHS, SMALL), max_batch=9, max_context=2000, max_chunk=400, draft_length=2
    )


def seconds(table, length, batch, context, chunk):
    return float(step_seconds(table, jnp.asarray(length), jnp.asarray(batch), context, chunk))


def test_steps_at_priced_places(table):
    assert table.seconds.shape[:2] == (3, 10)

    @jax.jit
    def both(load):
        cycle = price(Case(DEVICE, TARGET, load, WIDTHS, SMALL), chain_plan(2.0))
        return cycle.baselines.stored.cost.total_s, cycle.total_s

    for batch in (1, 3, 9):
        plain, cycle = both(Workload(batch=float(batch), context_tokens=2000.0, prompt_tokens=0.0))
        assert seconds(table, 0, batch, 2000.0, 0.0) == pytest.approx(float(plain), rel=1e-5)
        assert seconds(table, 2, batch, 2000.0, 0.0) == pytest.approx(float(cycle), rel=1e-5)


def test_chunks_beside_decoding_are_those_of_the_steady_state(table):
    # As many prompt tokens per step as sequences end in it: 4 * 2.5 * 400 / 20 = 200 of them.
    load = Workload(batch=4.0, context_tokens=2000.0, prompt_tokens=400.0, output_tokens=20.0)
    case = lambda load: Case(DEVICE, TARGET, load, WIDTHS, SMALL)
    steady = jax.jit(lambda load: serving_cycle(case(load), chain_plan(2.0), tokens_per_cycle=2.5))(load)
    assert seconds(table, 2, 4, 2000.0, 200.0) == pytest.approx(float(steady.total_s), rel=1e-5)


def test_a_chunk_alone_is_a_prefill(table):
    prefill = prefill_step(Workload(prompt_tokens=400.0), footprint=WIDTHS)
    (priced,) = jax.jit(lambda step: price_steps(DEVICE, TARGET, [step]))(prefill)
    assert seconds(table, 0, 0, 0.0, 400.0) == pytest.approx(float(priced.cost.total_s), rel=1e-5)
    # The draft reads the prompt too.
    assert seconds(table, 2, 0, 0.0, 400.0) > 1.02 * float(priced.cost.total_s)


def test_more_never_takes_less(table):
    found = np.asarray(table.seconds)
    assert np.all(np.diff(found, axis=2) >= 0)
    assert np.all(np.diff(found[:, 1:], axis=1) >= -1e-9)
    assert np.all(np.diff(found, axis=3) >= 0)
    assert np.all(np.diff(found[:, 1:], axis=0) > 0)


def test_between_priced_places_it_is_linear_interpolation_to_the_last_digit():
    draw = np.random.default_rng(4)
    contexts, chunks = np.array([0.0, 64.0, 177.0, 900.0], np.float32), np.array([0.0, 3.0, 40.0], np.float32)
    table = StepTable(jnp.asarray(draw.random((2, 3, 4, 3)), jnp.float32), jnp.asarray(contexts), jnp.asarray(chunks))
    # At places, between them, and behind the end.
    at = [
        (context, chunk) for context in (0.0, 64.0, 65.5, 899.0, 900.0, 901.0) for chunk in (0.0, 2.0, 3.0, 40.0, 41.0)
    ]
    for length, batch, (context, chunk) in itertools.product(range(2), range(3), at):
        columns = [jnp.interp(context, contexts, column) for column in table.seconds[length, batch].T]
        assert seconds(table, length, batch, context, chunk) == float(jnp.interp(chunk, chunks, jnp.stack(columns)))
