"""Many rates, one after the other: what each alone gives, and how far they are."""

import dataclasses
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels.serving.simulation import latencies, poisson_requests, serve, with_rate
from hwmodels.serving.step_table import Engine, StepTable
from jaxspec.studies.serve.result import DECODING

pytestmark = pytest.mark.study

serving = importlib.import_module("jaxspec.studies.serve.run")  # the package's `serve` is the function

KEY, COUNT, RATES, SIDES = jax.random.key(3), 300, np.array([0.2, 30.0]), np.array([0.0, -1.5], np.float32)


@pytest.fixture(scope="module")
def parts():
    requests = poisson_requests(KEY, COUNT, rate_per_s=1.0, prompt_tokens=40.0, output_tokens=9.0, output_variation=0.5)
    batch = jnp.arange(4.0)[None, :, None, None]
    seconds = jnp.broadcast_to(0.05 + 0.01 * batch, (3, 4, 2, 2)) + 0.02 * jnp.arange(3.0)[:, None, None, None]
    table = StepTable(seconds, jnp.array([0.0, 99.0]), jnp.array([0.0, 50.0]), jnp.full(seconds.shape, 0.1))
    lengths = jnp.asarray(np.array([[0] * 4, [2] * 4, [2, 2, 1, 0]]))
    return requests, table, Engine(50.0, 1e6, lengths, jnp.array([0.8, 0.6]), 3)


def test_each_rate_is_as_alone_and_progress_is_shown(parts, monkeypatch):
    requests, table, engine = parts
    monkeypatch.setattr(serving, "_STEPS", 256)
    told = []
    found = serving.serve_loads(requests, RATES, table, SIDES, engine, KEY, tell=lambda *words: told.append(words))
    assert found.ttft_s.shape == (len(SIDES), len(DECODING), len(RATES), 3)
    alone = jax.jit(
        lambda rate, side, lengths: latencies(
            with_rate(requests, rate),
            serve(
                with_rate(requests, rate), table.erring(side), dataclasses.replace(engine, draft_lengths=lengths), KEY
            ),
        )
    )
    for side, decoding, rate in np.ndindex(2, 3, 2):
        expected = alone(jnp.float32(RATES[rate]), SIDES[side], engine.draft_lengths[decoding])
        at = jax.tree.map(lambda leaf, at=(side, decoding, rate): leaf[at], found)
        # Two programs may round arrivals otherwise: at 1500 s the last digit is 0.12 ms.
        jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=2e-3), at, expected)
    done = [words[0] for words in told]
    assert done == sorted(done)
    assert {words[1] for words in told} == {0.2, 30.0}
    # The lower rate takes several times the steps, and is told of as often.
    assert sum(words[1] == 0.2 for words in told) > 3
    assert COUNT <= done[-1] < 2 * COUNT
