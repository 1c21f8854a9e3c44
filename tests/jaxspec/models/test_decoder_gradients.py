"""Gradients of the forward pass: the frugal way, narrow products, and differences."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoder_cases import CLOSE, CONFIG, PARAMS, TOKENS

from jaxspec.models import decoder

pytestmark = pytest.mark.usefixtures("exact_products")


@partial(jax.jit, static_argnames=("frugal", "dot_dtype"))
def loss_and_gradient(params, frugal=False, dot_dtype=None):
    def loss(params):
        logits = decoder.forward_text(params, CONFIG, TOKENS, frugal=frugal, dot_dtype=dot_dtype).logits
        return jnp.mean(jax.nn.logsumexp(logits, -1) - logits[:, :, 3])

    return jax.value_and_grad(loss)(params)


@pytest.mark.network
def test_the_frugal_way_has_the_same_values_and_gradients():
    chex.assert_trees_all_close(loss_and_gradient(PARAMS, frugal=True), loss_and_gradient(PARAMS), **CLOSE)


@pytest.mark.network
def test_narrow_products_give_nearly_the_same_gradient():
    wide, narrow = loss_and_gradient(PARAMS), loss_and_gradient(PARAMS, frugal=True, dot_dtype=jnp.bfloat16)
    flat = lambda tree: np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
    ours, exact = flat(narrow[1]), flat(wide[1])
    assert np.linalg.norm(ours - exact) < 0.03 * np.linalg.norm(exact)


def test_gradient_agrees_with_central_differences():
    with jax.enable_x64(True):
        params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), PARAMS)

        @jax.jit
        def loss_and_gradient(params):
            logits = lambda params: decoder.forward_text(params, CONFIG, TOKENS, dtype=jnp.float64).logits
            return jax.value_and_grad(lambda params: jnp.mean(logits(params)[:, :, 3] ** 2))(params)

        _, gradient = loss_and_gradient(params)
        for seed in range(4):
            rng = np.random.default_rng(seed)
            direction = jax.tree.map(lambda leaf, rng=rng: rng.standard_normal(leaf.shape), params)
            up, down = (
                loss_and_gradient(jax.tree.map(lambda p, d, step=step: p + step * d, params, direction))[0]
                for step in (1e-5, -1e-5)
            )
            slope = float(up - down) / 2e-5
            ours = sum(jax.tree.leaves(jax.tree.map(lambda g, d: float((g * d).sum()), gradient, direction)))
            assert abs(ours - slope) < 1e-5 * abs(slope)
