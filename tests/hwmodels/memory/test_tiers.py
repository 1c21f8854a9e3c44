import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels import MemoryTier, OperatorWork, step_cost
from hwmodels.memory import (
    half_efficiency_bytes,
    place_in_order,
    place_softly,
    seconds_per_byte,
    traffic_by_tier,
    traffic_cost,
)

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


def test_rate_of_a_tier_by_hand():
    # 40 bytes/s are reached. Four accesses of 15 bytes under way: each takes 0.5 s / 4 of latency and 15 / 40 s, so half a
    # second for 15 bytes; half of the bandwidth with 40 * 0.5 / 4 = 5 bytes.
    assert float(half_efficiency_bytes(NEAR)) == 5
    assert float(seconds_per_byte(NEAR, 15.0)) == pytest.approx(0.5 / 15, rel=1e-6)
    assert float(seconds_per_byte(NEAR, 5.0)) == pytest.approx(2 / 40, rel=1e-6)
    # A quarter of the compute units has a quarter of the banks; a tier that is shared by all does not care.
    assert float(seconds_per_byte(NEAR, 15.0, active_share=0.25)) == pytest.approx(2 / 15, rel=1e-6)
    assert float(seconds_per_byte(FAR, 18.0)) == pytest.approx(1 / (8 * 0.75), rel=1e-6)
    assert float(seconds_per_byte(FAR, 18.0, active_share=0.25)) == pytest.approx(1 / (8 * 0.75), rel=1e-6)
    assert float(seconds_per_byte(FAR)) == pytest.approx(1 / 8, rel=1e-6)


def test_a_tier_is_a_memory_like_any_other(toy_device):
    # A device may have it as its memory, and the roofline of plain streams is the same.
    tier = MemoryTier(**dataclasses.asdict(toy_device.memory))
    assert isinstance(tier, MemoryTier)
    zeros = jnp.zeros(3)
    traffic = jnp.array([3e5, 0.0, 7.1e8])
    device = toy_device.replace(memory=tier)
    times = step_cost(device, OperatorWork(zeros, traffic, zeros, zeros, zeros)).memory_s
    cost = traffic_cost([tier], traffic[:, None], schedule="serial")
    assert float(cost.total_s) == pytest.approx(float(times.sum()), rel=1e-6)
    # Flags are static, all else are leaves; a size that is not given is none.
    assert len(jax.tree.leaves(NEAR)) == 6
    assert len(jax.tree.leaves(FAR)) == 7


def test_spilling_by_hand():
    # 9 bytes of class 1 go first. Of the 6 of class 0 one is left room for, the others fill 5 of the next 7; class 2 has 2 more
    # there and 3 in the last, which takes the 4 of class 3 too and is 3 over its capacity.
    placed = place_in_order([NEAR, FAR, LAST], jnp.array([6.0, 9.0, 5.0, 4.0]), order=(1, 0, 2, 3))
    np.testing.assert_array_equal(placed.stored_bytes, [[1, 5, 0], [9, 0, 0], [0, 2, 3], [0, 0, 4]])
    np.testing.assert_array_equal(placed.overflow_bytes, [0, 0, 3])
    assert float(placed.capacity_penalty) == pytest.approx((3 / 24) ** 2, rel=1e-6)
    as_they_come = place_in_order([NEAR, FAR, LAST], jnp.array([6.0, 9.0, 5.0]))
    np.testing.assert_array_equal(as_they_come.stored_bytes, [[6, 0, 0], [4, 5, 0], [0, 2, 3]])
    assert float(as_they_come.capacity_penalty) == 0


def greedy(capacities, sizes, order):
    """One class after the other, each into the first tier with room."""
    free = list(capacities)
    stored = np.zeros((len(sizes), len(capacities)))
    for kind in order:
        left = sizes[kind]
        for tier in range(len(free)):
            taken = left if tier == len(free) - 1 else min(left, free[tier])
            stored[kind, tier] = taken
            free[tier] -= taken
            left -= taken
    return stored, max(0.0, -free[-1])


def tiers_of(capacities):
    return [MemoryTier(bandwidth_bytes_per_s=1.0, efficiency=1.0, capacity_bytes=capacity) for capacity in capacities]


# Small whole numbers: ties and zeros of all kinds occur.
@settings(max_examples=150)
@given(
    capacities=st.lists(st.integers(0, 6), min_size=3, max_size=3),
    sizes=st.lists(st.integers(0, 7), min_size=4, max_size=4),
    order=st.sampled_from([(0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)]),
)
def test_hard_placement_is_that_of_a_greedy_loop(capacities, sizes, order):
    placed = PLACED[order](jnp.array(capacities, jnp.float32), jnp.array(sizes, jnp.float32))
    stored, overflow = greedy(capacities, sizes, order)
    np.testing.assert_array_equal(placed.stored_bytes, stored)
    np.testing.assert_array_equal(placed.overflow_bytes, [0, 0, overflow])


PLACED = {
    order: jax.jit(
        lambda capacities, sizes, order=order: place_in_order(tiers_of(list(capacities)), sizes, order=order)
    )
    for order in [(0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)]
}


def test_a_small_class_keeps_its_size_behind_a_large_one():
    # Running sums of 1.6e10 bytes are exact to 1000 bytes in single precision.
    sizes = jnp.array([1.5e10, 1234.0, 1e9, 77.0])
    placed = place_in_order(tiers_of([1.55e10, 4e9]), sizes, order=(0, 1, 2, 3))
    np.testing.assert_array_equal(placed.stored_bytes[1], [1234, 0])
    np.testing.assert_array_equal(placed.stored_bytes[3], [0, 77])
    np.testing.assert_allclose(jnp.sum(placed.stored_bytes, axis=-1), sizes, rtol=1e-6)


def test_one_tier_takes_everything():
    placed = place_in_order([LAST], jnp.array([3.0, 0.5]))
    np.testing.assert_array_equal(placed.stored_bytes, [[3], [0.5]])
    assert float(place_in_order([LAST], jnp.array([3.0, 2.5])).overflow_bytes[0]) == 1.5
    assert float(place_in_order([LAST], jnp.zeros(2)).capacity_penalty) == 0


def test_soft_placement():
    sizes, logits = jnp.array([6.0, 9.0, 5.0]), jnp.array([[0.0, math.log(3.0)], [2.0, 0.3], [-1.0, 4.0]])
    soft = place_softly([NEAR, FAR], sizes, logits)
    # Shares 1 to 3: 1.5 and 4.5 bytes.
    np.testing.assert_allclose(soft.stored_bytes[0], [1.5, 4.5], rtol=1e-6)
    np.testing.assert_allclose(jnp.sum(soft.stored_bytes, axis=-1), sizes, rtol=1e-6)
    # Soft meets hard: towards temperature 0 each class lies in one tier, 9 bytes in the first and 11 in the second, 4 too many.
    distance = [
        float(
            jnp.max(
                jnp.abs(
                    place_softly([NEAR, FAR], sizes, logits, temperature=t).stored_bytes
                    - jnp.array([[0, 6], [9, 0], [0, 5.0]])
                )
            )
        )
        for t in (1.0, 0.5, 0.2, 0.05)
    ]
    assert distance == sorted(distance, reverse=True)
    assert distance[-1] < 1e-6
    hard = place_softly([NEAR, FAR], sizes, logits, temperature=1e-3)
    np.testing.assert_allclose(hard.overflow_bytes, [0, 4], rtol=1e-6)
    assert float(hard.capacity_penalty) == pytest.approx((4 / 20) ** 2, rel=1e-6)


TRAFFIC = jnp.array([[30.0, 12.0], [6.0, 40.0], [0.0, 3.0]])


def test_cost_by_hand():
    # Accesses of 15, 5 and 18 bytes. Near: 30 / 30 + 6 / 20 = 1.3 s. Far, with half the bandwidth at 6 bytes:
    # 12 / (8 * 15 / 21) + 40 / (8 * 5 / 11) + 3 / 6 = 2.1 + 11 + 0.5 = 13.6 s.
    at = {"schedule": "overlapped", "access_bytes": jnp.array([15.0, 5.0, 18.0])}
    cost = traffic_cost([NEAR, FAR], TRAFFIC, **at)
    np.testing.assert_allclose(cost.tier_s, [1.3, 13.6], rtol=1e-6)
    assert float(cost.total_s) == pytest.approx(13.6, rel=1e-6)
    # 36 bytes at 0.25 J/bit, 55 at 3.
    np.testing.assert_allclose(cost.tier_j, [72, 1320], rtol=1e-6)
    assert float(cost.total_j) == pytest.approx(1392, rel=1e-6)
    # A tenth of the compute units: the near tier takes 13 s, the far one as long as before.
    cost = traffic_cost([NEAR, FAR], TRAFFIC, **at | {"schedule": "serial"}, active_share=0.1)
    np.testing.assert_allclose(cost.tier_s, [13.0, 13.6], rtol=1e-6)
    assert float(cost.total_s) == pytest.approx(26.6, rel=1e-6)
    # In between, a smooth maximum: the hypotenuse.
    smooth = traffic_cost([NEAR, FAR], TRAFFIC, **at, active_share=0.1, temperature=0.5)
    assert float(smooth.total_s) == pytest.approx(math.hypot(13.0, 13.6), rel=1e-6)


def test_from_sizes_to_time():
    # 6 bytes near and 4 and 5 far; the first class is read twice, the second by a half.
    placed = place_in_order([NEAR.replace(capacity_bytes=6.0), FAR], jnp.array([10.0, 5.0]))
    traffic = traffic_by_tier(placed, jnp.array([2.0, 0.5]))
    np.testing.assert_allclose(traffic, [[12, 8], [0, 2.5]])
    assert float(traffic_cost([NEAR, FAR], traffic, schedule="serial").total_s) == pytest.approx(
        12 / 40 + 10.5 / 8, rel=1e-6
    )


# Properties over random tiers.


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


# Gradients.


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
