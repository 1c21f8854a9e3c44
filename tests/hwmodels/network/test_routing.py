"""Different experts of a step: against enumeration of all choices, and against tokens drawn one by one."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import Routing, touched_experts
from hwmodels.memory import zipf_popularity
from hwmodels.network.routing import measured_routing, pooled_choices

pytestmark = pytest.mark.device_matrix


def uneven_choices(experts, chosen):
    """All choices with a probability each, and the popularity that they make."""
    choices = [frozenset(one) for one in itertools.combinations(range(experts), chosen)]
    weights = np.random.default_rng(experts).uniform(0.1, 1.0, len(choices)) ** 2
    weights /= weights.sum()
    popularity = [sum(w for w, one in zip(weights, choices) if e in one) / chosen for e in range(experts)]
    return choices, weights, np.array(popularity)


def expected_touched(choices, weights, tokens, sequences, correlation):
    """By following every sequence of choices; sequences are independent, so that P(escaped) multiplies."""
    paths = {(one, one): w for one, w in zip(choices, weights)}
    for _ in range(tokens - 1):
        after = {}
        for (last, seen), p in paths.items():
            for one, w in zip(choices, weights):
                key = one, seen | one
                after[key] = after.get(key, 0.0) + p * ((1 - correlation) * w + correlation * (one == last))
        paths = after
    experts = range(1 + max(e for one in choices for e in one))
    escaped = [sum(p for (_, seen), p in paths.items() if e not in seen) for e in experts]
    return sum(1 - p**sequences for p in escaped)


@pytest.mark.parametrize(
    ("experts", "chosen", "tokens", "sequences", "correlation"),
    [(5, 2, 3, 2, 0.4), (4, 1, 4, 3, 0.9), (5, 3, 1, 4, 0.7), (4, 2, 3, 1, 1.0), (5, 2, 4, 1, 0.0)],
)
def test_touched_experts_by_enumeration(experts, chosen, tokens, sequences, correlation):
    choices, weights, popularity = uneven_choices(experts, chosen)
    for weighed, routing in [
        (weights, Routing(jnp.asarray(popularity), correlation)),
        (np.full(len(choices), 1 / len(choices)), Routing(correlation=correlation)),
    ]:
        found = touched_experts(experts, chosen, tokens, sequences=sequences, routing=routing)
        expected = expected_touched(choices, weighed, tokens, sequences, correlation)
        assert float(found) == pytest.approx(expected, rel=1e-5)


def rings(rng, rates, tokens):
    """Experts in the order in which they ring, "token expert": a router that prefers some."""
    return np.argsort(rng.exponential(size=(tokens, rates.size)) / rates, axis=1)


def test_a_pool_of_popular_experts_against_drawn_tokens():
    rng, experts, chosen, pool, step = np.random.default_rng(3), 24, 4, 9, 5
    order = rings(rng, np.arange(1, experts + 1) ** -0.8, 200_000)
    counts = np.bincount(order[:, :chosen].ravel(), minlength=experts)
    hottest = np.argsort(-counts)[:pool]
    # The original order of scores, those outside the pool left out.
    inside = order[np.isin(order, hottest)].reshape(len(order), pool)[:, :chosen]
    frequency = np.bincount(inside.ravel(), minlength=experts)[hottest] / len(order)
    unique = np.mean([np.unique(some).size for some in inside.reshape(-1, step * chosen)])

    popularity = jnp.asarray(counts / counts.sum())
    found = pooled_choices(Routing(popularity), experts, chosen, pool)
    assert found.held.tolist() == [1.0] * pool + [0.0] * (experts - pool)
    assert float(jnp.sum(found.held * found.probability)) == pytest.approx(chosen, rel=1e-5)
    np.testing.assert_allclose(found.probability[:pool], frequency, atol=0.03)
    touched = touched_experts(experts, chosen, step, routing=Routing(popularity), pool_experts=pool)
    assert float(touched) == pytest.approx(unique, rel=0.01)
    # As many experts as a token chooses: all of them, whatever the step.
    assert float(
        touched_experts(experts, chosen, 1, routing=Routing(popularity), pool_experts=chosen)
    ) == pytest.approx(4)
    assert float(touched_experts(experts, chosen, 7, pool_experts=chosen)) == pytest.approx(4)


def test_more_tokens_sequences_and_experts_touch_more_and_correlation_fewer():
    skewed = Routing(zipf_popularity(0.7, num_items=32), 0.3)
    for routing in (skewed, Routing(correlation=0.3)):

        def touched(tokens=3.0, sequences=2.0, pool=20.0, correlation=0.3, routing=routing):
            there = routing.replace(correlation=correlation)
            return touched_experts(32.0, 4.0, tokens, sequences=sequences, routing=there, pool_experts=pool)

        for name, values in [
            ("tokens", (1, 2, 2.5, 9)),
            ("sequences", (1, 1.5, 8)),
            ("pool", (4, 7.5, 8, 31.5, 32, 99)),
        ]:
            along = np.array([touched(**{name: float(value)}) for value in values])
            # A pool beyond all experts is all of them.
            assert np.all(np.diff(along) >= -1e-5), name
        along = np.array([touched(correlation=c) for c in (0.0, 0.2, 0.9, 1.0)])
        assert np.all(np.diff(along) < 0)
        # All tokens of a sequence choose alike: as many as one token of each sequence.
        assert float(touched(correlation=1.0)) == pytest.approx(float(touched(tokens=1.0)), rel=1e-5)
        assert float(touched(tokens=0.0)) == 0
        # Intra-request tokens touch fewer than as many of different requests.
        assert touched(tokens=6.0, sequences=1.0) < touched(tokens=1.0, sequences=6.0)
    assert touched_experts(32.0, 4.0, 5, routing=skewed.replace(correlation=0.0)) < touched_experts(32.0, 4.0, 5)


def test_gradients_of_touched_experts(check_gradient):
    skewed = jnp.array([0.31, 0.22, 0.2, 0.15, 0.12])

    def touched(x, popularity=None):
        tokens, sequences, correlation, pool = x
        return touched_experts(
            5.0, 2.0, tokens, sequences=sequences, routing=Routing(popularity, correlation), pool_experts=pool
        )

    check_gradient(touched, (3.5, 2.2, 0.4, 3.3))
    check_gradient(lambda x: touched(x[:4], x[4]), (3.5, 2.2, 0.4, 3.3, skewed))
    # A network without experts, and one whose tokens choose all of them.
    for sizes in ((0.0, 0.0), (3.0, 3.0)):
        at_end = lambda x, sizes=sizes: touched_experts(*sizes, x[0], routing=Routing(skewed, x[1]))
        assert np.all(np.isfinite(jax.grad(at_end)((2.0, 0.3))))


def test_a_measured_routing_is_that_of_the_choices():
    rng, experts, chosen, correlation = np.random.default_rng(5), 12, 3, 0.35
    rates = np.arange(1, experts + 1) ** -0.6
    drawn = rings(rng, rates, 40 * 500 * 2)[:, :chosen].reshape(40, 500, 2, chosen)
    drawn[:, :, 1] = (drawn[:, :, 1] + 5) % experts  # another layer, whose experts have other numbers
    repeats = rng.random((40, 500, 2)) < correlation
    for token in range(1, 500):
        drawn[:, token] = np.where(repeats[:, token, :, None], drawn[:, token - 1], drawn[:, token])
    found = measured_routing(jnp.asarray(drawn), num_experts=experts)
    counts = np.bincount(drawn[:, :, 0].ravel(), minlength=experts)
    np.testing.assert_allclose(found.popularity, np.sort(counts)[::-1] / counts.sum(), atol=0.01)
    assert float(jnp.sum(found.popularity)) == pytest.approx(1, rel=1e-5)
    assert float(found.correlation) == pytest.approx(correlation, abs=0.02)
    # Counted against foretold: different experts of 6 neighbouring tokens.
    counted = [np.unique(some).size for some in drawn[:, :498, 0].reshape(-1, 6 * chosen)]
    foretold = touched_experts(experts, chosen, 6, routing=found)
    assert float(foretold) == pytest.approx(np.mean(counted), rel=0.01)
    with pytest.raises(ValueError, match="num_experts is 3; it must be more than the 3"):
        measured_routing(jnp.asarray(drawn), num_experts=3)
