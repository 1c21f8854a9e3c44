"""What every placement passes: shares that sum to one, more room that never slows a step, gradients, one trace."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import Footprint, Routing, Workload, catalog, step_cost, uniform_weight_bits
from hwmodels.memory import zipf_popularity
from hwmodels.memory.placement import PLACEMENTS, TierShares, placement_of
from hwmodels.network.operators import decode_step, draft_step, step_operators, verify_step

NETWORK = catalog.architecture("qwen3-30b-a3b")
#: Without a unit of its own: what is tested is where bytes go.
DEVICE = catalog.device("elmoe3d-hb8").replace(matrix_unit=None)
WORKLOAD = Workload(batch=3.0, context_tokens=1000.0)


@pytest.fixture
def widths():
    return Footprint(
        draft_weight_bits=uniform_weight_bits(4.5),
        target_weight_bits=uniform_weight_bits(8.5),
        draft_kv_bits=16.0,
        target_kv_bits=16.0,
    )


def skewed(correlation=0.3):
    return Routing(zipf_popularity(0.6, num_items=128), correlation)


def steps(widths, pool=40.0):
    return [
        decode_step(WORKLOAD, footprint=widths),
        draft_step(WORKLOAD, footprint=widths, pool_experts=pool),
        verify_step(WORKLOAD, footprint=widths, verify_tokens=9.0),
    ]


@pytest.mark.device_matrix(1)
@pytest.mark.parametrize("name", PLACEMENTS)
def test_what_every_placement_keeps(name, widths, x64):
    policy = PLACEMENTS[name]()

    @jax.jit
    def found(capacity, bandwidth):
        first = DEVICE.memory.replace(capacity_bytes=capacity, bandwidth_bytes_per_s=bandwidth)
        device = DEVICE.replace(memory=first, placement=policy, schedule="serial")
        assert placement_of(device) is policy
        works = [step_operators(NETWORK, step, skewed()) for step in steps(widths)]
        shares = [policy.shares((first, *DEVICE.spill), work) for work in works]
        held = [policy.draft_experts((first, *DEVICE.spill), work) for work in works]
        # Serial: overlapped, what is moved to the faster memory may leave the slower one idle.
        return shares, held, jnp.stack([step_cost(device, work).total_s for work in works])

    times = []
    for capacity in (1e8, 2.5e9, 8e9, 3e10, 1e11):
        shares, held, seconds = found(capacity, 1.6e12)
        times.append(np.asarray(seconds))
        for one in shares:
            assert isinstance(one, TierShares)
            for leaf in vars(one).values():
                assert leaf.shape == (2,)
                assert np.all(leaf >= 0)
                assert float(jnp.sum(leaf)) == pytest.approx(1.0)
        assert all(0 <= float(experts) <= 128 for experts in held)
        # A faster memory never slows a step.
        assert np.all(found(capacity, 3e12)[2] <= seconds)
    if name == "external":
        assert np.ptp(times, axis=0) == pytest.approx(0.0)
    else:
        assert np.all(np.diff(times, axis=0) <= 1e-12)
        assert np.all(times[-1] < times[0])
        # Where all fits the first memory, nothing is read outside.
        assert [float(one.experts[0]) for one in found(1e11, 1.6e12)[0]] == pytest.approx([1.0] * 3, rel=1e-6)


@pytest.mark.device_matrix
def test_gradients_of_placements(widths, check_gradient):
    # All in one program. Room for some of everything; no pool is just full.
    def moved(x):
        capacity, pool, correlation, tokens, batch = x
        tiers = (DEVICE.memory.replace(capacity_bytes=capacity), *DEVICE.spill)
        load = WORKLOAD.replace(batch=batch)
        draft = draft_step(load, footprint=widths, tokens=tokens, pool_experts=pool)
        verify = verify_step(load, footprint=widths, verify_tokens=tokens)
        works = [step_operators(NETWORK, step, Routing(correlation=correlation)) for step in (draft, verify)]
        near = [kind().shares(tiers, work).experts[0] for kind in PLACEMENTS.values() for work in works]
        held = [kind().draft_experts(tiers, works[0]) for kind in PLACEMENTS.values()]
        return jnp.stack(near) @ jnp.arange(1.0, len(near) + 1.0) + sum(held)

    check_gradient(moved, (5.1e9, 47.3, 0.3, 5.2, 2.4))
