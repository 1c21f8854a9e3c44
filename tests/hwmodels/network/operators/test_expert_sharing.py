"""The busiest of several devices: against tokens drawn one by one and experts placed at random, limits, order, gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels import (
    Routing,
    busiest_load,
    touched_experts,
    zipf_routing,
)
from hwmodels.network.operators import busiest_experts
from hwmodels.network.routing import pooled_choices

pytestmark = pytest.mark.device_matrix

#: Experts, chosen by a token, tokens of a sequence, sequences, devices, exponent of a power law of ranks, correlation, pool.
CASES = [
    (128, 8, 1, 1, 8, 0.0, 0.0, None),
    (128, 8, 1, 17, 8, 0.0, 0.0, None),
    (96, 5, 230, 3, 12, 0.7, 0.0, None),
    (72, 3, 60, 2, 4, 0.5, 0.6, None),
    (128, 8, 3, 6, 16, 0.8, 0.0, 37),
]


def routing_of(experts, chosen, exponent, correlation):
    if exponent == 0:
        return Routing(correlation=correlation)
    return zipf_routing(
        exponent, num_experts=experts, experts_per_token=chosen, entries=experts, correlation=correlation
    )


def drawn_loads(rng, probability, tokens, sequences, correlation):
    """Choices of each expert. A token draws its experts with these probabilities, or repeats its predecessor's."""
    loads, choice = np.zeros(probability.size), np.zeros(0, int)
    for _ in range(sequences):
        for token in range(tokens):
            if token == 0 or rng.random() >= correlation:
                # Equal steps from a random start through experts in random order: each is met as often as it should be.
                order = rng.permutation(probability.size)
                ends = np.cumsum(probability[order])
                choice = order[np.searchsorted(ends, rng.random() + np.arange(round(ends[-1])), side="right")]
            loads[choice] += 1
    return loads


@pytest.mark.parametrize("case", CASES)
def test_the_busiest_device_against_drawn_tokens(case):
    experts, chosen, tokens, sequences, devices, exponent, correlation, pool = case
    routing = routing_of(experts, chosen, exponent, correlation)
    popularity = np.full(experts, 1 / experts) if exponent == 0 else np.sort(np.asarray(routing.popularity))[::-1]
    probability = np.minimum(chosen * popularity, 1.0)
    kept = experts
    if pool is not None:  # a router that prefers the pool's experts as they are chosen without one
        probability, kept = np.asarray(pooled_choices(routing, experts, chosen, pool).probability), pool
    probability = np.where(np.arange(experts) < kept, probability, 0.0)
    rng = np.random.default_rng(experts + tokens)
    loads, touched, all_touched = [], [], []
    for _ in range(250):
        drawn = drawn_loads(rng, probability, tokens, sequences, correlation)
        for _ in range(4):
            held = rng.permutation(drawn).reshape(devices, -1)
            loads.append(held.sum(axis=1).max())
            touched.append((held > 0).sum(axis=1).max())
        all_touched.append((drawn > 0).sum())
    mean = chosen * tokens * sequences / devices
    given = {"sequences": sequences, "routing": routing, "pool_experts": pool or np.inf}
    found = busiest_load(experts, chosen, tokens, devices=devices, **given)
    assert float(found) == pytest.approx(np.mean(loads) / mean, rel=0.05)
    everywhere = touched_experts(experts, chosen, tokens, **given)
    assert float(everywhere) == pytest.approx(np.mean(all_touched), rel=0.03)
    assert float(busiest_experts(everywhere, experts, devices)) == pytest.approx(np.mean(touched), rel=0.05)


#: A program for each number of experts: popularity has as many entries.
compiled_load = jax.jit(busiest_load)


@settings(max_examples=60)
@given(
    st.sampled_from([3, 4, 17, 64, 300]),
    st.floats(0, 1),
    st.integers(1, 500),
    st.integers(1, 40),
    st.floats(0, 1),
    st.floats(0, 1.3),
)
def test_limits_and_order(experts, share, tokens, sequences, spread, exponent):
    chosen, devices = 1.0 + share * (experts - 1.0), 1.0 + spread * (experts / 1.3 - 1.0)
    routing = routing_of(experts, chosen, exponent, 0.0)
    of = lambda **changes: float(
        compiled_load(
            **({"num_experts": experts, "experts_per_token": chosen, "tokens": tokens, "devices": devices} | changes),
            sequences=sequences,
            routing=routing,
        )
    )
    assert of(devices=1.0) == 1.0
    assert of(experts_per_token=experts) == pytest.approx(1.0, abs=1e-5)
    once = of()
    assert 1.0 <= once <= min(devices, experts / chosen) * (1 + 1e-6)
    # More tokens are loads more even, and never less to multiply.
    more = of(tokens=1.7 * tokens)
    assert once * (1 + 1e-5) >= more >= once / 1.7 * (1 - 1e-5)
    # More devices are loads less even, and never more to multiply on one of them.
    further = of(devices=1.3 * devices)
    assert further >= once * (1 - 1e-5)
    assert further / (1.3 * devices) <= once / devices * (1 + 1e-5)


def test_experts_of_the_busiest_device():
    assert float(busiest_experts(5.0, 48.0, 1.0)) == 5.0
    assert float(busiest_experts(48.0, 48.0, 8.0)) == pytest.approx(6.0)  # all experts: all devices alike
    assert float(busiest_experts(1.0, 48.0, 8.0)) == 1.0
    by_touched = np.asarray(busiest_experts(jnp.linspace(0.0, 48.0, 300), 48.0, 8.0))
    assert np.all(np.diff(by_touched) >= -1e-5)
    assert by_touched[0] == 0.0
    # One token: its choices are what is read and what is multiplied.
    for devices in (2.0, 7.0, 16.0):
        load = 3.0 / devices * float(busiest_load(48.0, 3.0, 1.0, devices=devices))
        assert load == pytest.approx(float(busiest_experts(3.0, 48.0, devices)), rel=1e-6)


def test_gradients(check_gradient):
    popularity = jnp.asarray(np.random.default_rng(2).dirichlet(np.full(40, 0.8)))

    def of(tree):
        routing = Routing(popularity=tree["popularity"], correlation=tree["correlation"], independence=0.9)
        return busiest_load(
            40.0, tree["chosen"], tree["tokens"], devices=tree["devices"], sequences=tree["sequences"], routing=routing
        )

    at = {"chosen": 1.3, "tokens": 21.0, "devices": 6.7, "sequences": 3.0, "correlation": 0.2, "popularity": popularity}
    check_gradient(of, at, step=1e-5)
    check_gradient(lambda tree: busiest_experts(tree[0], 40.0, tree[1]), (13.0, 6.7), step=1e-5)
    # At one device nothing is added, and a little more of one adds what it should.
    check_gradient(lambda devices: busiest_load(40.0, 3.0, 11.0, devices=devices), 1.0, step=1e-4)
