"""A step on a calibrated GPU evaluates the tilings of its products once, however many terms read their time."""

import jax
import jax.numpy as jnp
import pytest

import hwmodels
from hwmodels import catalog
from hwmodels.compute.roofline import unit_of

pytestmark = pytest.mark.device_matrix

_BATCHES = jnp.linspace(1.0, 64.0, 64)


def ceilings(function):
    """How often a compiled program rounds up: once for each count of tiles and waves that it evaluates."""
    return jax.jit(jax.vmap(function)).lower(_BATCHES).compile().as_text().count(" ceil(")


def test_a_step_rounds_up_as_often_as_its_parts():
    device, network = catalog.device("l40s"), catalog.architecture("llama-3.1-8b")
    unit, sixteen = unit_of(device), hwmodels.uniform_footprint(16.0)

    def product(batch):
        return unit.gemm(device).product_time(batch, 300.0 * batch, 100.0 * batch, weight_bits=16.0)

    def experts(batch):
        sizes = [jnp.stack([batch, batch * s]) for s in (2.0, 100.0, 300.0)]
        return unit.experts_on(device).product_time(*sizes, products=sizes[0], weight_bits=16.0, temperature=0.0)

    def step(batch):
        work = hwmodels.decode_operators(
            network, hwmodels.Workload(batch=batch, context_tokens=1000.0), footprint=sixteen
        )
        return hwmodels.step_cost(device, work).total_s

    of_products, of_experts, of_step = map(ceilings, (product, experts, step))
    assert of_products > 8
    assert of_experts > 0
    assert of_products + of_experts <= of_step < 2 * of_products + of_experts
