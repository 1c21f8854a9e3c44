"""Caches asked by steps of several draws: inclusion, distinct items, hits."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lru_samples import hit_rate, jit, zipf, zipf_popularity

from hwmodels import memory

distinct_items = jit(memory.distinct_items)


inclusion_probability = jit(memory.inclusion_probability)


step_hits = jit(memory.step_hits)


def exact_inclusion(shares, draws):
    """P(item is among the draws), summed over all sequences of draws without replacement."""
    inclusion = np.zeros(len(shares))
    for sequence in itertools.permutations(range(len(shares)), draws):
        probability, left = 1.0, 1.0
        for item in sequence:
            probability *= shares[item] / left
            left -= shares[item]
        inclusion[list(sequence)] += probability
    return inclusion


@pytest.mark.parametrize(
    ("exponent", "items", "draws", "tolerance"),
    [(1.0, 8, 1, 0.032), (1.0, 8, 2, 0.026), (0.6, 16, 2, 0.012), (0.3, 14, 3, 0.006)],
)
def test_inclusion_is_close_to_that_of_all_sequences_of_draws(exponent, items, draws, tolerance):
    exact = exact_inclusion(zipf(exponent, 0.0, items), draws)
    popularity = zipf_popularity(exponent, num_items=items)
    inclusion = np.asarray(inclusion_probability(popularity, draws))
    assert inclusion.sum() == pytest.approx(draws, rel=1e-5)
    worst = np.max(np.abs(inclusion - exact))
    assert tolerance / 2 < worst < tolerance
    # 16 tokens, each for itself: evened out, so never fewer different items than really, and at most 2.5 % more.
    distinct = np.sum(1 - (1 - exact) ** 16)
    assert distinct <= float(distinct_items(popularity, draws, tokens=16)) < 1.025 * distinct


def test_distinct_items_by_hand():
    # Equal popularity, 3 of 10: an item is missed by a token with 0.7, by four with 0.2401.
    uniform = jnp.ones(10)
    assert float(distinct_items(uniform, 3)) == pytest.approx(3, rel=1e-6)
    assert float(distinct_items(uniform, 3, tokens=4)) == pytest.approx(10 * (1 - 0.2401), rel=1e-6)


def test_limits_of_distinct_items():
    popularity = zipf_popularity(1.1, 0.6, num_items=26)
    assert float(distinct_items(popularity, 26.0, tokens=5)) == 26
    assert float(distinct_items(popularity, 0.0, tokens=5)) == 0
    assert float(distinct_items(popularity, 4)) == pytest.approx(4, rel=1e-5)
    assert float(distinct_items(popularity, 4, tokens=1e6)) == pytest.approx(26, rel=1e-5)
    by_tokens = distinct_items(popularity, 4, tokens=jnp.array([1.0, 2.0, 3.5, 9.0, 40.0]))
    assert np.all(np.diff(by_tokens) > 0)
    assert np.all(np.diff(distinct_items(popularity, jnp.linspace(0, 26, 9), tokens=3)) > 0)
    # A rare item among many tokens: 1 - (1 - p) ** n without cancellation.
    rare = jnp.array([1.0, 1e-6])
    with jax.enable_x64(True):
        expected = float(distinct_items(jnp.array([1.0, 1e-6]), 1.0, tokens=1e5))
    assert float(distinct_items(rare, 1.0, tokens=1e5)) == pytest.approx(expected, rel=1e-5)


def test_gradient_of_draws(check_gradient):
    at = (jnp.asarray(zipf(0.8, 0.2, 9)), jnp.array([1.3, 6.7]), jnp.array([1.0, 7.5]))
    check_gradient(lambda x: jnp.sum(memory.distinct_items(x[0], x[1], tokens=x[2])), at)


def test_gradient_of_draws_at_the_ends(check_at_ends):
    popularity = 3.0 ** -jnp.arange(4.0)
    draws = jnp.array([0.0, 0.0, 4.0, 4.0, 4.0])
    tokens = jnp.array([1.0, 3.5, 1.0, 3.0, 2.0])
    directions = (jnp.array([1.0, 1.0, -1.0, -1.0, 0.0]), jnp.array([0.0, 0.0, 0.0, 0.0, 1.0]))
    slopes = check_at_ends(lambda x: memory.distinct_items(popularity, x[0], tokens=x[1]), (draws, tokens), directions)
    # The first draw of each token is a different item; where all are drawn by every token, one draw fewer loses none.
    np.testing.assert_allclose(slopes, [1, 3.5, -1, 0, 0], rtol=1e-9, atol=1e-9)


def simulate_steps(shares, *, draws, tokens, capacity, steps, rng):
    """Hits and requests of each step: hits against what the step finds, then all requested items are the most recent."""
    noise = rng.gumbel(size=(steps, tokens, len(shares)))
    chosen = np.argpartition(-(np.log(shares) + noise), draws, axis=-1)[..., :draws].reshape(steps, -1)
    cache, counts = [], []
    for row in chosen:
        requested = np.unique(row)
        rng.shuffle(requested)
        new = requested.tolist()
        counts.append((len(set(new).intersection(cache)), len(new)))
        cache = (new + [item for item in cache if item not in set(new)])[:capacity]
    return np.array(counts, float)[steps // 10 :]


# Measured: off by 0.010 at worst, in a cache of half the items of a step; the standard error is 0.001 to 0.003.
@pytest.mark.parametrize(
    ("exponent", "items", "draws", "tokens", "capacity"),
    [
        (0.6, 64, 6, 1, 20),
        (0.6, 64, 6, 4, 40),
        (0.6, 64, 6, 4, 10),
        (1.0, 128, 8, 8, 60),
        (0.8, 30, 2, 3, 12),
        (0.0, 16, 2, 1, 5),
    ],
)
def test_hits_of_steps_agree_with_a_simulated_cache(exponent, items, draws, tokens, capacity):
    rng = np.random.default_rng(draws)
    counts = simulate_steps(
        zipf(exponent, 0.0, items), draws=draws, tokens=tokens, capacity=capacity, steps=4000, rng=rng
    )
    model = step_hits(zipf_popularity(exponent, num_items=items), capacity, draws=draws, tokens=tokens)
    assert float(model.requested_items) == pytest.approx(counts[:, 1].mean(), rel=1e-2)
    assert float(model.hit_rate) == pytest.approx(counts[:, 0].sum() / counts[:, 1].sum(), abs=0.015)


def test_steps_at_the_ends():
    popularity = zipf_popularity(0.8, num_items=12)
    none, all_of_them = (step_hits(popularity, capacity, draws=3, tokens=2) for capacity in (0, 12))
    assert float(none.hit_rate) == 0
    assert float(all_of_them.hit_rate) == pytest.approx(1, rel=1e-6)
    assert float(none.requested_items) == pytest.approx(float(distinct_items(popularity, 3, tokens=2)), rel=1e-6)
    # Popular items are requested by more steps, but even more of the single requests are theirs.
    assert float(step_hits(popularity, 5, draws=3, tokens=2).hit_rate) < float(hit_rate(popularity, 5))


def test_gradient_of_steps(check_gradient):
    at = (jnp.asarray(zipf(0.8, 0.1, 12)), jnp.array(7.7), jnp.array(2.6), jnp.array(3.0), jnp.linspace(1.0, 2.5, 12))
    check_gradient(lambda x: memory.step_hits(x[0], x[1], draws=x[2], tokens=x[3], item_sizes=x[4]).missed_size, at)
