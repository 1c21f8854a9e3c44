import collections
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels import memory

pytestmark = pytest.mark.device_matrix

# Compiling is what these tests spend their time on.
zipf_popularity = jax.jit(memory.zipf_popularity, static_argnames="num_items")


def rate(popularity, capacity, **sizes):
    """Share of requests that hit."""
    resident = memory.residency(popularity, capacity, **sizes)
    popularity = jnp.broadcast_to(popularity, resident.shape)
    return (resident * popularity).sum(-1) / popularity.sum(-1)


hit_rate = jax.jit(rate)


def zipf(exponent, shift, num_items):
    """Popularity in plain NumPy."""
    weights = (np.arange(1, num_items + 1) + shift) ** -float(exponent)
    return weights / weights.sum()


residency = jax.jit(memory.residency)
inclusion_probability = jax.jit(memory.inclusion_probability)


def test_power_law_by_hand():
    # 1/4, 1/9, 1/16 = 36, 16, 9 parts of 61.
    np.testing.assert_allclose(zipf_popularity(2.0, 1, num_items=3), np.array([36, 16, 9]) / 61, rtol=1e-6)
    np.testing.assert_allclose(zipf_popularity(0.0, 5.5, num_items=7), np.full(7, 1 / 7), rtol=1e-6)
    exponents, shifts = jnp.array([0.3, 1.7]), jnp.array([2.5, -0.4])
    together = zipf_popularity(exponents, shifts, num_items=5)
    for i in range(2):
        np.testing.assert_allclose(together[i], zipf(exponents[i], float(shifts[i]), 5), rtol=1e-5)


@pytest.mark.parametrize(("num_items", "capacity"), [(37, 9), (5, 4.5), (1000, 1e-3), (1, 0.25)])
def test_uniform_popularity_hits_as_often_as_there_is_room(num_items, capacity):
    popularity = zipf_popularity(0.0, num_items=num_items)
    assert float(hit_rate(popularity, capacity)) == pytest.approx(capacity / num_items, rel=2e-6)


@settings(max_examples=25)
@given(
    popularity=st.lists(st.floats(1e-4, 1.0), min_size=13, max_size=13),
    sizes=st.lists(st.floats(0.1, 30.0), min_size=13, max_size=13),
    filled=st.floats(1e-3, 0.999),
)
def test_items_are_resident_by_the_time_that_brent_finds(popularity, sizes, filled):
    shares, sizes = np.array(popularity) / np.sum(popularity), np.array(sizes)
    capacity = filled * sizes.sum()
    excess = lambda time: np.sum(sizes * -np.expm1(-shares * time)) - capacity
    # Shares are above 1e-4 / 13, and a cache filled to 0.999 takes less than ln(1000 * 300 * 13) times of the rarest.
    expected = scipy.optimize.brentq(excess, 0, 16 * 13e4, xtol=1e-12, rtol=1e-14)
    with jax.enable_x64(True):
        resident = residency(jnp.asarray(popularity), capacity, item_sizes=jnp.asarray(sizes))
        # Items in the floor of the rates are requested 1e-12 times too often.
        np.testing.assert_allclose(resident, -np.expm1(-shares * expected), rtol=1e-7)
    single = residency(
        jnp.asarray(popularity, jnp.float32), np.float32(capacity), item_sizes=jnp.asarray(sizes, jnp.float32)
    )
    np.testing.assert_allclose(single, -np.expm1(-shares * expected), rtol=2e-3)
    assert np.sum(sizes * single) == pytest.approx(capacity, rel=1e-5)


def simulate(requests, sizes, capacity):
    """Which requests hit an LRU cache that keeps whole items."""
    cache, used, hits = collections.OrderedDict(), 0.0, []
    for item in requests:
        hits.append(item in cache)
        if item in cache:
            cache.move_to_end(item)
        else:
            used += sizes[item]
            cache[item] = True
            while used > capacity:
                used -= sizes[cache.popitem(last=False)[0]]
    return np.array(hits)


WARM_UP, NUM_REQUESTS = 20_000, 120_000


@pytest.mark.parametrize(
    ("exponent", "shift", "items", "capacity"),
    [(0.6, 0.0, 50, 11), (1.0, 2.7, 300, 40), (2.0, 0.0, 60, 5), (1.0, 0.0, 40, 38)],
)
def test_agrees_with_a_simulated_cache(exponent, shift, items, capacity):
    rng = np.random.default_rng(items)
    requests = rng.choice(items, size=WARM_UP + NUM_REQUESTS, p=zipf(exponent, shift, items))
    hits = simulate(requests.tolist(), [1] * items, capacity)[WARM_UP:]
    # Standard error from the spread of 60 batch means: hits are correlated. It is 0.0003 to 0.002 here.
    batches = hits.reshape(60, -1).mean(axis=1)
    standard_error = batches.std(ddof=1) / math.sqrt(60)
    assert standard_error < 2.5e-3
    model = float(hit_rate(zipf_popularity(exponent, shift, num_items=items), capacity))
    assert abs(model - hits.mean()) < 3 * standard_error + 1e-3


def test_more_room_and_a_steeper_law_hit_more_often():
    capacities = jnp.linspace(0.0, 83.0, 50)
    by_capacity = np.asarray(hit_rate(zipf_popularity(0.8, 1.7, num_items=83), capacities))
    assert np.all(np.diff(by_capacity) > 0)
    # The best items come first: each further byte gains less, and all are at least as good as at random.
    assert np.all(np.diff(by_capacity, 2) < 1e-6)
    assert np.all(by_capacity >= np.asarray(capacities) / 83 - 1e-6)
    by_exponent = hit_rate(zipf_popularity(jnp.linspace(0.0, 3.0, 20), 1.7, num_items=83), 11.0)
    assert np.all(np.diff(by_exponent) > 0)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32 - 1),
    spread=st.floats(0.0, 4.0),
    filled=st.floats(1e-4, 0.9999),
    factor=st.floats(1e-3, 1e3),
)
def test_residency_fills_the_cache_and_knows_no_unit(seed, spread, filled, factor):
    rng = np.random.default_rng(seed)
    popularity = jnp.asarray(np.exp(spread * rng.standard_normal(29)), jnp.float32)
    sizes = jnp.asarray(rng.uniform(0.2, 7.0, 29), jnp.float32)
    capacity = filled * jnp.sum(sizes)
    resident = residency(popularity, capacity, item_sizes=sizes)
    assert np.all((resident >= 0) & (resident <= 1))
    assert float(jnp.sum(resident * sizes)) == pytest.approx(float(capacity), rel=1e-5)
    assert np.all(np.diff(np.asarray(resident)[np.argsort(popularity)]) >= 0)
    np.testing.assert_allclose(
        residency(popularity * factor, capacity * factor, item_sizes=sizes * factor), resident, rtol=2e-3, atol=1e-6
    )


def test_gradient(check_gradient):
    rng = np.random.default_rng(1)
    at = {
        "exponent": jnp.array([0.4, 1.1, 2.5]),
        "shift": jnp.array([0.3, 4.1, 1.7]),
        "capacity": jnp.array([2.2, 25.0, 30.1]),
        "sizes": jnp.asarray(rng.uniform(0.5, 4.0, 17)),
        # Of popularity as such, not of a law, some of it rare.
        "popularity": jnp.asarray(rng.uniform(0.1, 5.0, 17)).at[4].set(1e-3),
    }

    def function(x):
        law = memory.zipf_popularity(x["exponent"], x["shift"], num_items=17)
        each = (rate(popularity, x["capacity"], item_sizes=x["sizes"]) for popularity in (law, x["popularity"]))
        return jnp.sum(sum(each))

    check_gradient(function, at)


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
