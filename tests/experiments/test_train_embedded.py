import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.train_embedded.train import (
    SHAPES,
    Recipe,
    expert_load,
    load_push,
    load_summary,
    make_step,
)
from jaxspec.models.decoder import abstract_params, forward_text

pytestmark = pytest.mark.network

MOE = SHAPES["moe"]
assert MOE.experts is not None
TINY = dataclasses.replace(
    MOE,
    vocab_size=11,
    hidden_size=8,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    experts=dataclasses.replace(MOE.experts, num_experts=6, per_token=2, inner_size=4, shared_size=4),
)


@pytest.fixture
def tiny():
    # Fresh each time: a training step takes its arguments' memory.
    rng = np.random.default_rng(3)
    return jax.tree.map(
        lambda leaf: jnp.asarray(0.4 * rng.standard_normal(leaf.shape, np.float32)), abstract_params(TINY)
    )


def choices(params, tokens):
    extras = forward_text(params, TINY, tokens).extras
    assert extras is not None
    return extras.original


def test_load_by_hand():
    # One sequence of three tokens, two layers, two of four experts each.
    choices = jnp.asarray([[[[0, 1], [3, 2]], [[1, 0], [3, 0]], [[1, 2], [3, 1]]]])
    load = np.asarray(expert_load(choices, 4))
    np.testing.assert_allclose(load, [[2 / 3, 1, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3, 1]])
    # The mean is one half: a band of 0.7 to 1.9 means 0.35 to 0.95.
    np.testing.assert_array_equal(load_push(jnp.asarray(load), (0.7, 1.9)), [[0, -1, 1, 1], [1, 1, 1, -1]])
    summary = load_summary(load)
    np.testing.assert_allclose(summary.least, [0, 1 / 3])
    np.testing.assert_allclose(summary.most, [1, 1])
    # Shares 1/3, 1/2, 1/6 of the choices; and 1/6 three times, 1/2.
    by_hand = [math.log2(3) / 3 + 1 / 2 + math.log2(6) / 6, math.log2(6) / 2 + 1 / 2]
    np.testing.assert_allclose(summary.entropy, by_hand, rtol=1e-6)


def test_corrections_move_by_their_own_rate_and_nothing_else(tiny):
    recipe = Recipe(steps=9, warmup_steps=1, balance_rate=0.25, balance_steeper=(2, 3.0), load_band=(0.8, 1.3))
    init, step = make_step(recipe, TINY)
    tokens = jnp.asarray(np.random.default_rng(1).integers(11, size=(4, 7)), jnp.int32)
    params, state = tiny, init(tiny)
    loaded = jax.jit(lambda params: expert_load(choices(params, tokens[:, :-1]), 6))
    for rate in (0.25, 0.25, 0.75):
        before = np.asarray(params["layers"]["correction_bias"])
        push = np.asarray(load_push(loaded(params), recipe.load_band))
        assert {-1.0, 1.0} <= set(push.flat)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes integers and floats
            params, state, loss = step(params, state, tokens)
        assert np.isfinite(loss)
        moved = np.asarray(params["layers"]["correction_bias"]) - before
        np.testing.assert_allclose(moved, rate * push, atol=1e-6)
