"""Energy of draft-verify cycles beyond their steps: what is drawn while an engine works, and cycles without a draft."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import (
    Acceptance,
    Case,
    Chip,
    EngineTerms,
    baselines,
    catalog,
    chain_plan,
    price,
    priced_chains,
    uniform_footprint,
)
from hwmodels.analysis.design_point import design_point
from hwmodels.memory.placement import ByMode

pytestmark = pytest.mark.device_matrix

CHIP = Chip(energy_j_per_flop=0.7e-12, static_power_w=3.0, area_m2=9e-5)


@jax.jit
def pointed(case, acceptance):
    return design_point(case, priced_chains(case, acceptance).result)


def test_a_device_draws_power_while_its_engine_works(small, toy_device, workload, footprint):
    device = toy_device.replace(memory=toy_device.memory.replace(energy_j_per_bit=5e-12), chip=CHIP)
    case = Case(device, small, workload, footprint)
    step_s = float(jax.jit(baselines)(case).stored.cost.total_s)
    terms = EngineTerms(cycle_s=0.1 * step_s, draft_pass_s=0.02 * step_s)
    plan, in_engine = chain_plan(jnp.arange(1.0, 4.0)), dataclasses.replace(case, engine=terms)
    without, served = (jax.jit(price)(one, plan) for one in (case, in_engine))
    np.testing.assert_allclose(served.engine_s, step_s * (0.1 + 0.02 * np.arange(1, 4)), rtol=1e-5)
    np.testing.assert_allclose(served.energy_j - without.energy_j, 3.0 * served.engine_s, rtol=1e-3)
    # All tokens are accepted, so that a draft pays; what is drawn meanwhile is in the energy of a token too.
    sure = Acceptance(jnp.ones(3))
    point = pointed(in_engine, sure)
    assert int(point.draft_length) > 0
    joules = served.energy_j[int(point.draft_length) - 1]
    expected = float(joules / point.tokens_per_cycle / workload.batch)
    assert float(point.energy_per_token_j) == pytest.approx(expected, rel=1e-5)


def test_without_a_draft_a_token_costs_an_autoregressive_step(workload):
    # Placements may differ by what a step is for: a cycle of no draft is none of speculation.
    device = catalog.device("elmoe3d-hb8").replace(placement=ByMode())
    network = catalog.architecture("qwen3-30b-a3b")
    case = Case(device, network, workload, uniform_footprint(8))
    point = pointed(case, Acceptance(jnp.zeros(2)))
    stored = jax.jit(baselines)(case).stored.cost
    assert int(point.draft_length) == 0
    assert float(point.cycle_s) == pytest.approx(float(stored.total_s), rel=1e-5)
    assert float(point.energy_per_token_j) == pytest.approx(float(stored.energy.total_j / workload.batch), rel=1e-5)
