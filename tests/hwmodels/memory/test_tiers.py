import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels import MemoryTier
from hwmodels.memory import half_efficiency_bytes, place_in_order

NEAR = MemoryTier(
    bandwidth_bytes_per_s=80.0,
    efficiency=0.5,
    capacity_bytes=10.0,
    access_latency_s=0.5,
    outstanding_accesses=4.0,
    energy_j_per_bit=0.25,
    coupled=True,
)


FAR = MemoryTier(
    bandwidth_bytes_per_s=10.0, efficiency=0.8, capacity_bytes=7.0, given_half_bytes=6.0, energy_j_per_bit=3.0
)

LAST = MemoryTier(bandwidth_bytes_per_s=2.0, efficiency=1.0, capacity_bytes=4.0)


def tiers_of(capacities):
    return [MemoryTier(bandwidth_bytes_per_s=1.0, efficiency=1.0, capacity_bytes=capacity) for capacity in capacities]


def test_accesses_that_reach_half_the_bandwidth():
    # 40 bytes/s are reached. Four accesses of 15 bytes under way: each takes 0.5 s / 4 of latency and 15 / 40 s, so half a
    # second for 15 bytes; half of the bandwidth with 40 * 0.5 / 4 = 5 bytes.
    assert float(half_efficiency_bytes(NEAR)) == 5


@pytest.mark.device_matrix
def test_spilling_by_hand():
    # 9 bytes go first. Of the 6 of the second class one is left room for, the others fill 5 of the next 7; the third has 2 more
    # there and 3 in the last, which takes the 4 of the fourth too and is 3 over its capacity.
    placed = place_in_order([NEAR, FAR, LAST], 9.0, 6.0, 5.0, 4.0)
    np.testing.assert_array_equal(placed, [[9, 0, 0], [1, 5, 0], [0, 2, 3], [0, 0, 4]])


def greedy(capacities, sizes):
    """One class after the other, each into the first tier with room."""
    free = list(capacities)
    stored = np.zeros((len(sizes), len(capacities)))
    for kind, left in enumerate(sizes):
        for tier in range(len(free)):
            taken = left if tier == len(free) - 1 else min(left, free[tier])
            stored[kind, tier] = taken
            free[tier] -= taken
            left -= taken
    return stored


PLACED = jax.jit(lambda capacities, sizes: place_in_order(tiers_of(list(capacities)), *sizes))


# Small whole numbers: ties and zeros of all kinds occur.
@pytest.mark.device_matrix
@settings(max_examples=150)
@given(
    capacities=st.lists(st.integers(0, 6), min_size=3, max_size=3),
    sizes=st.lists(st.integers(0, 7), min_size=4, max_size=4),
)
def test_hard_placement_is_that_of_a_greedy_loop(capacities, sizes):
    placed = PLACED(jnp.array(capacities, jnp.float32), jnp.array(sizes, jnp.float32))
    np.testing.assert_array_equal(placed, greedy(capacities, sizes))


def weighted(x):
    """A different price for each class in each tier."""
    capacities, sizes = x
    prices = jnp.array([[1.0, 2.5, 4.7], [1.3, 3.1, 9.2], [2.2, 5.3, 7.9]])
    return jnp.sum(prices * place_in_order(tiers_of(list(capacities)), *sizes))


def test_gradient_at_sizes_and_capacities_of_zero(check_at_ends):
    # Each row: capacities, sizes, and what grows from zero.
    cases = [
        ([0, 4, 9], [3, 2, 5], [1, 0, 0], [0, 0, 0]),
        ([3, 0, 9], [2, 4, 5], [0, 1, 0], [0, 0, 0]),
        ([5, 4, 9], [0, 2, 6], [0, 0, 0], [1, 0, 0]),
        ([5, 4, 9], [7, 0, 1], [0, 0, 0], [0, 1, 0]),
        ([5, 4, 1], [7, 6, 0], [0, 0, 0], [0, 0, 1]),
        ([0, 0, 9], [7, 0, 1], [0, 1, 0], [0, 0, 0]),
        ([5, 4, 9], [0, 0, 0], [0, 0, 0], [1, 2, 3]),
    ]
    columns = [jnp.array(column, float) for column in zip(*cases)]
    check_at_ends(weighted, tuple(columns[:2]), tuple(columns[2:]))
