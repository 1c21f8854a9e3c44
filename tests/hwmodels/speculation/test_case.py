"""A case and its price: the one path, mapped and differentiated as it is."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import NO_ENGINE, Case, EngineTerms, Routing, catalog, chain_plan, price
from hwmodels.speculation import fitting_pool


@pytest.fixture
def case(toy_device, small, workload, footprint):
    return Case(toy_device, small, workload, footprint, engine=EngineTerms(cycle_s=3e-5))


def test_an_engine_adds_its_terms(case):
    plan = chain_plan(jnp.array([1.0, 3.0]))
    served, alone = price(case, plan), price(dataclasses.replace(case, engine=NO_ENGINE), plan)
    np.testing.assert_allclose(served.total_s, np.asarray(alone.total_s) + 3e-5, rtol=1e-6)
    assert float(served.engine_s[0]) == pytest.approx(3e-5, rel=1e-5)


def test_a_case_is_mapped_and_differentiated(case):
    def total(bandwidth):
        memory = dataclasses.replace(case.device.memory, bandwidth_bytes_per_s=bandwidth)
        on_device = dataclasses.replace(case, device=dataclasses.replace(case.device, memory=memory))
        return price(on_device, chain_plan(3.0)).total_s

    rates = jnp.array([2e11, 3e11, 5e11])
    seconds = jax.vmap(total)(rates)
    np.testing.assert_allclose(seconds[1], total(3e11), rtol=1e-6)
    assert (jnp.diff(seconds) < 0).all()
    slope = jax.grad(total)(3e11)
    differences = (total(3.03e11) - total(2.97e11)) / 6e9
    np.testing.assert_allclose(slope, differences, rtol=2e-2)


def test_a_case_of_batches_is_refused(case):
    several = dataclasses.replace(case.workload, batch=jnp.array([1.0, 2.0, 5.0]))
    with pytest.raises(ValueError, match=r"Case\.workload has arrays.*jax\.vmap"):
        price(dataclasses.replace(case, workload=several), chain_plan(3.0))
    memory = dataclasses.replace(case.device.memory, bandwidth_bytes_per_s=jnp.array([2e11, 3e11]))
    with pytest.raises(ValueError, match=r"Case\.device\.tiers has arrays"):
        price(dataclasses.replace(case, device=dataclasses.replace(case.device, memory=memory)), chain_plan(3.0))


@pytest.mark.parametrize("narrow", [jnp.bfloat16, jnp.float16])
def test_numbers_of_16_bits_are_priced_as_wider_ones(case, narrow):
    priced = price(case, chain_plan(jnp.asarray(3.0, narrow))).total_s
    assert priced.dtype == jnp.float32
    np.testing.assert_allclose(priced, price(case, chain_plan(3.0)).total_s, rtol=1e-6)


def test_a_case_without_a_footprint_is_uncompressed(case):
    plain = dataclasses.replace(case, footprint=Case(case.device, case.architecture, case.workload).footprint)
    cycle = price(plain, chain_plan(2.0))
    # What is stored is the 16-bit network itself.
    np.testing.assert_allclose(cycle.baselines.stored.cost.total_s, cycle.baselines.bf16.cost.total_s, rtol=1e-6)


def test_a_pool_that_fits_follows_the_device(workload, footprint):
    routed = Case(
        catalog.device("elmoe3d-hb4"),
        catalog.architecture("gpt-oss-20b"),
        workload,
        footprint,
        routing=Routing(correlation=0.3),
        pool_fits=True,
    )
    parts = {"workload": workload, "footprint": footprint, "routing": routed.routing}
    pool = routed.pooled.draft.pool_experts
    assert float(pool) == pytest.approx(float(fitting_pool(routed.device, routed.architecture, **parts)))
    assert 0 < float(pool) < float(routed.architecture.num_experts)
