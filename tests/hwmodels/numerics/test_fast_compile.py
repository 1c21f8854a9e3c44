"""Programs that compile quickly: the function's own results, one compilation, and options that XLA knows."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import Acceptance, Case, Workload, chain_plan, price, priced_chains
from hwmodels.numerics import jit_fast_compile
from hwmodels.numerics.fast_compile import priced_at_once


def test_results_and_compilations_are_those_of_jit():
    @jit_fast_compile
    @chex.assert_max_traces(1)
    def function(x, *, scale):
        """Doc."""
        return {"y": jnp.sum(jnp.exp(-x * scale)), "z": x[::2]}

    plain = jax.jit(lambda x, scale: {"y": jnp.sum(jnp.exp(-x * scale)), "z": x[::2]})
    for seed in range(3):
        x = jax.random.uniform(jax.random.key(seed), (100,))
        found, expected = function(x, scale=jnp.float32(seed)), plain(x, jnp.float32(seed))
        np.testing.assert_allclose(found["y"], expected["y"], rtol=1e-6)
        np.testing.assert_array_equal(found["z"], expected["z"])
    assert function.__doc__ == "Doc."


@pytest.mark.parametrize(
    ("entry", "given"), [(priced_chains, Acceptance(np.array([0.8, 0.7], np.float32))), (price, chain_plan(2.0))]
)
def test_public_prices_compile_once_for_all_values(entry, given, toy_device, small):
    traced = priced_at_once(chex.assert_max_traces(entry.__wrapped__, n=1))
    found = []
    # Python's whole numbers are numbers like others, also beyond 32 bits.
    for bandwidth, batch in ((1e12, 1.0), (2_000_000_000_000, 1), (2e12, 4.0)):
        memory = toy_device.memory.replace(bandwidth_bytes_per_s=bandwidth)
        workload = Workload(batch=batch, context_tokens=100)
        found.append(traced(Case(toy_device.replace(memory=memory), small, workload), given))
    first, second, third = (np.ravel(getattr(one, "cycle", one).total_s)[0] for one in found)
    assert second < first
    assert third > second


@pytest.mark.device_matrix
def test_prices_are_part_of_programs_that_call_them(toy_device, small):
    """Alone, compiled, mapped and differentiated: one number."""
    plan, workload = chain_plan(2.0), Workload(batch=1.0, context_tokens=100.0)

    def total_s(bandwidth):
        device = toy_device.replace(memory=toy_device.memory.replace(bandwidth_bytes_per_s=bandwidth))
        return price(Case(device, small, workload), plan).total_s

    alone = total_s(1e11)
    np.testing.assert_allclose(jax.jit(total_s)(1e11), alone, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(lambda: total_s(1e11))(), alone, rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(total_s)(jnp.array([1e11, 2e11]))[0], alone, rtol=1e-5)
    value, slope = jax.value_and_grad(total_s)(1e11)
    np.testing.assert_allclose(value, alone, rtol=1e-5)
    np.testing.assert_allclose(slope, jax.jit(jax.grad(total_s))(1e11), rtol=1e-4)
    assert slope < 0
