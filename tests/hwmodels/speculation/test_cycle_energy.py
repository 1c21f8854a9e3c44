"""Energy of draft-verify cycles beyond their steps: what is drawn while an engine works, and cycles without a draft."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import (
    Acceptance,
    Chip,
    EngineTerms,
    baselines,
    catalog,
    chain_plan,
    price_cycle,
    uniform_footprint,
)
from hwmodels.analysis.design_point import design_point
from hwmodels.memory.placement import ByMode
from hwmodels.speculation.draft_cost import COMPRESSED_COPY
from hwmodels.speculation.engine_terms import NO_ENGINE

pytestmark = pytest.mark.device_matrix

CHIP = Chip(energy_j_per_flop=0.7e-12, static_power_w=3.0, area_m2=9e-5)


def test_a_device_draws_power_while_its_engine_works(small, toy_device, workload, footprint):
    device = toy_device.replace(memory=toy_device.memory.replace(energy_j_per_bit=5e-12), chip=CHIP)
    common = {"workload": workload, "footprint": footprint}
    step_s = float(jax.jit(baselines)(device, small, **common).stored.cost.total_s)
    terms = EngineTerms(cycle_s=0.1 * step_s, draft_pass_s=0.02 * step_s)
    chains = partial(price_cycle, draft_cost=COMPRESSED_COPY, plan=chain_plan(jnp.arange(1.0, 4.0)), **common)
    without, served = (jax.jit(partial(chains, engine=one))(device, small) for one in (NO_ENGINE, terms))
    np.testing.assert_allclose(served.engine_s, step_s * (0.1 + 0.02 * np.arange(1, 4)), rtol=1e-5)
    np.testing.assert_allclose(served.energy_j - without.energy_j, 3.0 * served.engine_s, rtol=1e-3)
    # All tokens are accepted, so that a draft pays; what is drawn meanwhile is in the energy of a token too.
    sure = Acceptance(jnp.ones(3))
    point = jax.jit(partial(design_point, acceptance=sure, engine=terms, **common))(device, small)
    assert int(point.draft_length) > 0
    joules = served.energy_j[int(point.draft_length) - 1]
    expected = float(joules / point.tokens_per_cycle / workload.batch)
    assert float(point.energy_per_token_j) == pytest.approx(expected, rel=1e-5)


def test_without_a_draft_a_token_costs_an_autoregressive_step(workload):
    # Placements may differ by what a step is for: a cycle of no draft is none of speculation.
    device = catalog.device("elmoe3d-hb8").replace(placement=ByMode())
    network = catalog.architecture("qwen3-30b-a3b")
    common = {"workload": workload, "footprint": uniform_footprint(8)}
    point = jax.jit(partial(design_point, acceptance=Acceptance(jnp.zeros(2)), **common))(device, network)
    stored = jax.jit(partial(baselines, **common))(device, network).stored.cost
    assert int(point.draft_length) == 0
    assert float(point.cycle_s) == pytest.approx(float(stored.total_s), rel=1e-5)
    assert float(point.energy_per_token_j) == pytest.approx(float(stored.energy.total_j / workload.batch), rel=1e-5)
