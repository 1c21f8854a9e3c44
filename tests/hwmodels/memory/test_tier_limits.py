"""Memory tiers: physics, gradients, batches, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers_samples import FAR, NEAR, tiers_of

from hwmodels import MemoryTier
from hwmodels.memory import (
    place_in_order,
    place_softly,
    traffic_by_tier,
    traffic_cost,
)


@st.composite
def random_tiers(draw, sort=False):
    """Three tiers and traffic of four classes, from one seed: sizes from nothing to far beyond the capacities."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    fields = {
        "bandwidth_bytes_per_s": 10 ** rng.uniform(9, 12, 3),
        "efficiency": rng.uniform(0.3, 1.0, 3),
        "capacity_bytes": 10 ** rng.uniform(7, 10, 3),
        "access_latency_s": 10 ** rng.uniform(-8, -5, 3),
        "outstanding_accesses": rng.uniform(1.0, 90.0, 3),
        "energy_j_per_bit": rng.uniform(0.0, 5e-12, 3),
    }
    if sort:
        fields["bandwidth_bytes_per_s"] = np.sort(fields["bandwidth_bytes_per_s"])[::-1] * [1, 0.3, 0.1]
        fields["access_latency_s"] = np.sort(fields["access_latency_s"])
        fields["efficiency"] = np.full(3, 0.7)
        fields["outstanding_accesses"] = np.full(3, 7.3)
    tiers = {name: jnp.asarray(value, jnp.float32) for name, value in fields.items()}
    sizes = jnp.asarray(10 ** rng.uniform(5, 10, 4), jnp.float32)
    return tiers, sizes, jnp.asarray(10 ** rng.uniform(2, 8, 4), jnp.float32)


def unstack(fields):
    return [MemoryTier(**{name: value[i] for name, value in fields.items()}, coupled=i == 0) for i in range(3)]


@jax.jit
def costs(fields, sizes, access_bytes, active_share=1.0):
    """Overlapped, slightly smooth, serial."""
    tiers = unstack(fields)
    traffic = traffic_by_tier(place_in_order(tiers, sizes), 1.7)
    at = {"access_bytes": access_bytes, "active_share": active_share}
    return [
        traffic_cost(tiers, traffic, schedule="overlapped", **at),
        traffic_cost(tiers, traffic, schedule="overlapped", temperature=0.2, **at),
        traffic_cost(tiers, traffic, schedule="serial", **at),
    ]


@settings(max_examples=60)
@given(random_tiers())
def test_never_faster_than_the_bandwidth(case):
    fields, sizes, access = case
    bandwidth, traffic = np.asarray(fields["bandwidth_bytes_per_s"]), 1.7 * float(sizes.sum())
    overlapped, smooth, serial = costs(fields, sizes, access)
    # All tiers together at most, the fastest one at most.
    assert float(overlapped.total_s) >= traffic / bandwidth.sum() * (1 - 1e-5)
    assert float(serial.total_s) >= traffic / bandwidth.max() * (1 - 1e-5)
    assert float(overlapped.total_s) <= float(smooth.total_s) * (1 + 1e-5)
    assert float(smooth.total_s) <= float(serial.total_s) * (1 + 1e-5)
    # Longer accesses, up to streams, are faster; fewer compute units slower, in the tier that is theirs.
    for faster, slower in ((jnp.inf, access), (access, access / 3)):
        assert np.all(costs(fields, sizes, faster)[0].tier_s <= costs(fields, sizes, slower)[0].tier_s * (1 + 1e-5))
    half = costs(fields, sizes, access, 0.5)[0].tier_s
    np.testing.assert_allclose(half, overlapped.tier_s * jnp.array([2.0, 1.0, 1.0]), rtol=1e-5)


@settings(max_examples=30)
@given(random_tiers())
def test_twice_the_bandwidths_and_half_the_latencies_halve_the_time(case):
    fields, sizes, access = case
    faster = fields | {
        "bandwidth_bytes_per_s": 2 * fields["bandwidth_bytes_per_s"],
        "access_latency_s": fields["access_latency_s"] / 2,
    }
    for one, two in zip(costs(fields, sizes, access), costs(faster, sizes, access)):
        assert float(two.total_s) == pytest.approx(float(one.total_s) / 2, rel=1e-5)
        np.testing.assert_array_equal(one.tier_j, two.tier_j)


@settings(max_examples=60)
@given(random_tiers(sort=True), st.integers(0, 2), st.floats(1.0, 30.0))
def test_more_room_is_never_slower_where_tiers_are_used_in_turn_and_the_fastest_is_filled_first(case, tier, factor):
    fields, sizes, access = case
    larger = fields | {"capacity_bytes": fields["capacity_bytes"].at[tier].multiply(factor)}
    before, after = (float(costs(f, sizes, access)[2].total_s) for f in (fields, larger))
    assert after <= before * (1 + 1e-5)


def test_overlapped_more_room_may_be_slower():
    # 9 bytes over tiers of 6 and 3 bytes/s: 6 and 3 take one second, all 9 in the faster one 1.5.
    tiers = [
        MemoryTier(bandwidth_bytes_per_s=rate, efficiency=1.0, capacity_bytes=room)
        for rate, room in ((6.0, 6.0), (3.0, 9.0))
    ]
    time = lambda tiers: float(
        traffic_cost(tiers, place_in_order(tiers, jnp.array([9.0])).stored_bytes, schedule="overlapped").total_s
    )
    assert time(tiers) == pytest.approx(1.0)
    assert time([tiers[0].replace(capacity_bytes=9.0), tiers[1]]) == pytest.approx(1.5)


@pytest.mark.parametrize("schedule", ["overlapped", "serial"])
def test_gradient_of_time_and_energy(schedule, check_gradient):
    def function(x):
        tiers, sizes, access, share, logits, reads = x
        soft, hard = place_softly(tiers, sizes, logits, temperature=0.7), place_in_order(tiers, sizes, order=(2, 0, 1))
        total = 0.0
        for placed in (soft, hard):
            cost = traffic_cost(
                tiers,
                traffic_by_tier(placed, reads),
                schedule=schedule,
                access_bytes=access,
                active_share=share,
                temperature=0.15,
            )
            total += jnp.log(cost.total_s) + 1e-3 * cost.total_j + placed.capacity_penalty
        return total

    logits = jnp.array([[0.3, -1.0], [1.2, 0.1], [-0.4, 0.8]])
    at = (
        [NEAR, FAR],
        jnp.array([6.5, 9.0, 5.0]),
        jnp.array([15.0, 5.0, 18.0]),
        jnp.array(0.3),
        logits,
        jnp.array([1.0, 0.4, 2.2]),
    )
    check_gradient(function, at)


def weighted(x):
    """A different price for each class in each tier."""
    capacities, sizes = x
    placed = place_in_order(tiers_of(list(capacities)), sizes)
    prices = jnp.array([[1.0, 2.5, 4.7], [1.3, 3.1, 9.2], [2.2, 5.3, 7.9]])
    return jnp.sum(prices * placed.stored_bytes) + 0.7 * jnp.sum(placed.overflow_bytes)


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


def test_gradient_where_a_class_ends_with_a_tier(check_at_ends):
    # Promised is that of more room: capacities that grow, sizes that shrink.
    capacities, sizes = (
        jnp.array([[5.0, 4.0, 9.0]] * 4),
        jnp.array([[5.0, 4.0, 3.0], [2.0, 3.0, 4.0], [5.0, 1.0, 2.0], [5.0, 4.0, 9.0]]),
    )
    more = jnp.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    check_at_ends(weighted, (capacities, sizes), (more, 0 * more))
    less = -jnp.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    check_at_ends(weighted, (capacities, sizes), (0 * less, less))


def test_penalty_has_no_slope_where_it_begins(x64):
    logits, sizes = jnp.zeros((2, 2)), jnp.array([3.0, 5.0])
    penalty = lambda room: place_softly(tiers_of([room, 9.0]), sizes, logits).capacity_penalty
    # 4 bytes lie in each tier.
    assert [float(jax.grad(penalty)(room)) for room in (4.0, 4.5)] == [0, 0]
    assert float(jax.grad(penalty)(3.0)) == pytest.approx(-2 * 1.0 / 8**2)


def test_streams_and_idle_tiers_have_finite_gradients():
    gradient = jax.grad(lambda x: traffic_cost([NEAR, FAR], x[0], schedule="overlapped", access_bytes=x[1]).total_s)
    for leaf in jax.tree.leaves(gradient((jnp.zeros((3, 2)), jnp.array([jnp.inf, 4.0, 1.0])))):
        assert np.all(np.isfinite(leaf))


def test_batches_broadcast_and_new_values_do_not_retrace(jit_once):
    scale = jnp.array([1.0, 3.0, 0.4, 2.0])
    batch = [jax.tree.map(lambda leaf: leaf * scale, tier) for tier in (NEAR, FAR)]
    sizes, access = jnp.array([6.5, 9.0, 5.0]), jnp.array([15.0, 5.0, 18.0])

    def function(tiers):
        placed = place_in_order(tiers, sizes, order=(2, 0, 1))
        cost = traffic_cost(
            tiers, traffic_by_tier(placed, 1.5), schedule="overlapped", access_bytes=access, temperature=0.1
        )
        return placed, cost

    together, mapped = function(batch), jax.vmap(function)(batch)
    assert together[1].tier_j.shape == (4, 2)
    for one, other in zip(jax.tree.leaves(together), jax.tree.leaves(mapped)):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    traced = jit_once(function)
    for i in range(4):
        alone = traced([jax.tree.map(lambda leaf, i=i: leaf[i], tier) for tier in batch])
        assert float(alone[1].total_s) == pytest.approx(float(together[1].total_s[i]), rel=1e-6)


@pytest.mark.wrong_arrays
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: place_in_order([], jnp.ones(2)), "0 tiers and sizes of shape"),
        (lambda: place_in_order([FAR], jnp.ones(0)), "both need at least one"),
        (lambda: place_in_order([FAR], jnp.ones(3), order=(0, 2)), r"order is \(0, 2\)"),
        (lambda: place_in_order([FAR], jnp.ones(3), order=(0, 2, 2)), "each of the 3 classes once"),
        (lambda: place_softly([FAR, NEAR], jnp.ones(3), jnp.ones((2, 3))), "3 classes, 2 tiers"),
        (lambda: traffic_cost([FAR], jnp.ones((3, 2)), schedule="serial"), "of which 1 came"),
        (lambda: traffic_cost([FAR], jnp.ones((3, 1)), schedule="parallel"), "schedule is 'parallel'"),  # type: ignore[arg-type]
    ],
)
def test_what_is_wrong_is_said(call, message):
    with pytest.raises(ValueError, match=message):
        call()
