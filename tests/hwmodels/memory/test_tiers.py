import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers_samples import FAR, NEAR, tiers_of

from hwmodels import MemoryTier, OperatorWork, step_cost
from hwmodels.memory import (
    half_efficiency_bytes,
    place_in_order,
    place_softly,
    seconds_per_byte,
    traffic_by_tier,
    traffic_cost,
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
