"""A context that sequences have in common is held once and read once, and nothing else changes."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hwmodels
from hwmodels import catalog
from hwmodels.network.operators import decode_step, step_operators
from hwmodels.step.capacity import held_bytes

pytestmark = pytest.mark.device_matrix

FOOTPRINT = hwmodels.uniform_footprint(16.0)
BITS = {"weight_bits": FOOTPRINT.target_weight_bits, "kv_bits": 16.0}


def work_of(shape, **load):
    return step_operators(shape, decode_step(hwmodels.Workload(**load), footprint=FOOTPRINT))


@pytest.fixture(scope="module", params=["llama-3.1-8b", "gpt-oss-20b", "deepseek-v2-lite"])
def shape(request):
    return catalog.architecture(request.param)


def test_the_shared_part_counts_once(shape):
    apart = work_of(shape, batch=16.0, context_tokens=1500.0)
    together = work_of(shape, batch=16.0, context_tokens=1500.0, shared_tokens=1000.0)
    one, of_500 = (work_of(shape, batch=1.0, context_tokens=tokens) for tokens in (1500.0, 500.0))
    sixteen_500 = work_of(shape, batch=16.0, context_tokens=500.0)
    # What all read together, and what each reads of its own.
    wanted = one.kv_bytes + sixteen_500.kv_bytes - of_500.kv_bytes
    np.testing.assert_allclose(together.kv_bytes, wanted, rtol=1e-6)
    assert together.kv_bytes.sum() < apart.kv_bytes.sum()
    wanted = one.stored.kv + sixteen_500.stored.kv - of_500.stored.kv
    np.testing.assert_allclose(together.stored.kv, wanted, rtol=1e-6)
    held = held_bytes(shape, batch=16.0, context_tokens=1501.0, shared_tokens=1000.0, **BITS)
    np.testing.assert_allclose(held.kv, together.stored.kv, rtol=1e-6)
    # Latent attention is expanded for each sequence in this model; all other arithmetic is the same, in fewer, taller products.
    np.testing.assert_allclose(together.flops, apart.flops, rtol=1e-6)
    volume = lambda work: work.shapes.m * work.shapes.k * work.shapes.n * work.shapes.products
    np.testing.assert_allclose(volume(together), volume(apart), rtol=1e-5)
    assert np.all(together.shapes.products <= apart.shapes.products)
    np.testing.assert_array_equal(together.weight_bytes, apart.weight_bytes)


@pytest.mark.parametrize("device", ["rtx-4090", "h200-sxm", "hexagon-v75", "jetson-agx-orin"])
def test_sharing_never_costs_time(device):
    device, shape = catalog.device(device), catalog.architecture("llama-3.2-1b")
    load = hwmodels.Workload(batch=16.0, context_tokens=2000.0)
    priced = jax.jit(
        lambda device, load: hwmodels.baselines(hwmodels.Case(device, shape, workload=load, footprint=FOOTPRINT)).bf16
    )
    seconds = [
        float(priced(device, dataclasses.replace(load, shared_tokens=tokens)).cost.total_s)
        for tokens in (0.0, 700.0, 1400.0, 2000.0)
    ]
    assert all(later <= earlier * (1 + 1e-6) for earlier, later in itertools.pairwise(seconds))
    assert seconds[-1] < seconds[0]


def test_gradient_by_the_shared_tokens():
    shape = catalog.architecture("gpt-oss-20b")
    kv = lambda shared: jnp.sum(work_of(shape, batch=8.0, context_tokens=1000.0, shared_tokens=shared).kv_bytes)
    slope = jax.grad(kv)(500.0)
    np.testing.assert_allclose(slope, (kv(520.0) - kv(480.0)) / 40, rtol=1e-2)
    assert slope < 0
