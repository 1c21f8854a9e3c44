"""Pools and bit widths in the objective: gradients, soft and hard, and what a pool does to the price of a draft step."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from elastic_networks import mixture, uneven_network

from hwmodels import Case, DraftCost, Workload, catalog
from jaxspec.compress.expert_pool import pool_sizes
from jaxspec.compress.knobs import Knobs, uniform_knobs
from jaxspec.compress.schemes.elastic import ELASTIC
from jaxspec.compress.weights import target_network
from jaxspec.models.stored import as_stored
from jaxspec.tuning.calibration import calibrate
from jaxspec.tuning.objective import mean_log_speedup, measure, price, priced_draft

pytestmark = pytest.mark.network

CONFIG = mixture(11)
DEPTH = 3
WINDOWS = jnp.array([2, 0, 1])
SHAPE = (CONFIG.num_layers, len(CONFIG.matrix_kinds))


@pytest.fixture(scope="module")
def calibration():
    network = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), uneven_network(CONFIG, 3, sharpness=2.0))
    target = target_network(ELASTIC, as_stored(network))
    tokens = np.random.default_rng(1).integers(11, size=(3, 30)).astype(np.int32)
    return calibrate(target, CONFIG, tokens, scheme=ELASTIC, first=6, sharing=2)


@pytest.fixture(scope="module")
def pricing():
    device, architecture = catalog.device("jetson-agx-orin"), catalog.architecture("qwen3-30b-a3b")
    return Case(device, architecture, Workload(batch=6.0, context_tokens=900.0))


def knobs_at(seed):
    """Between whole numbers and half-integers; a pool of n experts has the share (n - 2) / 7."""
    rng = np.random.default_rng(seed)
    offset = lambda shape: rng.uniform(0.1, 0.4, shape)
    return Knobs(
        values={
            "slice_bits": jnp.asarray(rng.integers(2, 6, SHAPE) + offset(SHAPE)),
            "expert_pool": jnp.asarray((rng.integers(0, 7, 3) + offset(3)) / 7),
        },
        draft_length_logits=jnp.asarray(rng.standard_normal(DEPTH)),
        scheme=ELASTIC,
    )


def wide(tree):
    """All floats in 64 bits."""
    return jax.tree.map(lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, tree)


@pytest.mark.usefixtures("x64")
def test_gradient_in_every_knob_and_at_whole_numbers(gradient_check, calibration, pricing):
    def loss(knobs, temperature):
        found = measure(wide(calibration), knobs, windows=WINDOWS, offset=1, soft_temperature=temperature)
        return -mean_log_speedup(price(pricing, found, 0.05), knobs.draft_length_logits)

    check = gradient_check(loss, step=1e-5)
    gradient = check(knobs_at(0), jnp.asarray(0.3))
    # Matrices of layers that lack them, and the pool of a dense layer, are not felt.
    felt = np.zeros(SHAPE, bool)
    for place, kind in enumerate(CONFIG.matrix_kinds):
        felt[list(CONFIG.layer_parameters[kind].layers()), place] = True
    np.testing.assert_array_equal(gradient.values["slice_bits"] != 0, felt)
    np.testing.assert_array_equal(gradient.values["expert_pool"] != 0, [False, True, True])
    # Whole numbers and both ends: the right-hand gradient, at the upper end the left-hand one.
    knobs = knobs_at(1)
    ends = np.asarray([1.0, 0.0, 1.0])
    knobs = knobs.replace_values(slice_bits=jnp.round(knobs.values["slice_bits"]), expert_pool=jnp.asarray(ends))
    sides = {
        "slice_bits": np.where(np.asarray(knobs.values["slice_bits"]) == 6, -1, 1),
        "expert_pool": np.where(ends == 1, -1, 1),
    }
    check(knobs, jnp.asarray(0.1), side=knobs.replace(values=sides, draft_length_logits=np.zeros(DEPTH)))


def test_the_soft_measurement_tends_to_the_hard_one(calibration):
    common = {"windows": WINDOWS, "offset": 2}
    soft = jax.jit(lambda knobs, t: measure(calibration, knobs, soft_temperature=t, **common))
    hard = jax.jit(lambda knobs: measure(calibration, knobs, soft_temperature=None, **common))
    gap = lambda a, b: max(float(np.max(np.abs(x - y))) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b)))
    for seed in (2, 3):
        knobs = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), knobs_at(seed))
        expected = hard(knobs)
        assert gap(soft(knobs, 1e-4), expected) < 1e-4
        assert gap(soft(knobs, 0.3), expected) > 0.05


def test_sizes_of_pools_by_hand():
    knobs = uniform_knobs(ELASTIC, CONFIG, expert_pool=0.35)  # 2 + 0.35 * 7 = 4.45 of 9 experts
    hard = pool_sizes(knobs, CONFIG, None)
    assert hard is not None
    assert (hard.low.tolist(), hard.weight) == ([4, 4], None)
    np.testing.assert_allclose(hard.share, 2 / 7)
    soft = pool_sizes(knobs, CONFIG, 0.1)
    assert soft is not None
    assert soft.low.tolist() == [4, 4]
    # (sigmoid(-0.5) - sigmoid(-5)) / (sigmoid(5) - sigmoid(-5)) = 0.375867
    np.testing.assert_allclose(soft.weight, 0.375867, rtol=1e-4)
    np.testing.assert_allclose(soft.share, 2.375867 / 7, rtol=1e-4)
    whole = pool_sizes(uniform_knobs(ELASTIC, CONFIG, expert_pool=1.0), CONFIG, 0.1)
    assert whole is not None
    assert whole.low.tolist() == [8, 8]


def test_a_smaller_pool_makes_draft_steps_of_a_batch_cheaper(calibration, pricing):
    found = jax.jit(lambda knobs: measure(calibration, knobs, windows=WINDOWS, offset=0, soft_temperature=None))
    seconds, steps = jax.jit(lambda pricing, measured: price(pricing, measured).cycle_s[1]), {}
    for share in (0.0, 0.5, 1.0):
        measured = found(uniform_knobs(ELASTIC, CONFIG, expert_pool=share))
        same = dataclasses.replace(measured, survival=jnp.zeros_like(measured.survival))
        steps[share] = float(seconds(pricing, same))
        cost = priced_draft(pricing, measured)
        pool = 8 + np.mean(np.round(2 + share * 7) - 2) / 7 * 120  # of 128 experts, 8 per token
        assert float(cost.pool_experts) == pytest.approx(pool)
    assert steps[0.0] < steps[0.5] < steps[1.0]
    dense = dataclasses.replace(measured, pool_share=None)
    assert priced_draft(pricing, dense) == DraftCost()
    assert float(seconds(pricing, dataclasses.replace(dense, survival=same.survival))) == pytest.approx(steps[1.0])
