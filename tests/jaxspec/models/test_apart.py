"""Matrices that are arrays of their own, transposed: the same network, in the form that products of few rows read fastest."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.models.apart import Apart, Columns
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import forward_text, init_params
from jaxspec.models.stored import as_computed

pytestmark = pytest.mark.network

CONFIG = DecoderConfig(
    vocab_size=13, hidden_size=8, intermediate_size=12, num_layers=3, num_heads=2, num_kv_heads=1, head_dim=4
)
TOKENS = jnp.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])


@pytest.fixture(scope="module")
def params():
    return init_params(CONFIG, jax.random.key(0))


@pytest.fixture(scope="module")
def apart(params):
    return as_computed(params)


@pytest.fixture(scope="module")
def run():
    return jax.jit(lambda params: forward_text(params, CONFIG, TOKENS, keep_activations=lambda x: x))


def test_the_same_numbers_layer_by_layer(params, apart, run):
    stacked, found = run(params), run(apart)
    for wanted, got in zip(jax.tree.leaves(stacked), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-6)
    assert found.cache.key.shape == stacked.cache.key.shape


def test_every_matrix_and_nothing_else(params, apart):
    assert {name for name, leaf in apart["layers"].items() if isinstance(leaf, Apart)} == set(CONFIG.matrix_kinds)
    for name in CONFIG.matrix_kinds:
        stack = apart["layers"][name]
        assert (stack.shape, stack.size, stack.dtype) == (
            params["layers"][name].shape,
            params["layers"][name].size,
            jnp.float32,
        )
        np.testing.assert_array_equal(stack.values(), params["layers"][name])
        np.testing.assert_array_equal(stack.take(jnp.array(1)).values(), params["layers"][name][1])
        # What a program reads lies with the input columns first.
        assert [part.array.shape for part in stack.parts] == [stack.shape[:0:-1]] * CONFIG.num_layers
    np.testing.assert_array_equal(apart["lm_head"].values(), params["lm_head"])
    assert isinstance(apart["lm_head"], Columns)
    np.testing.assert_array_equal(apart["embed"], params["embed"])


def test_a_tied_embedding_is_looked_up_and_stays(params):
    tied = {name: leaf for name, leaf in params.items() if name != "lm_head"}
    found = as_computed(tied)
    config = dataclasses.replace(CONFIG, tie_embeddings=True)
    assert isinstance(found["embed"], jax.Array)
    run = jax.jit(forward_text, static_argnums=1)
    logits = [run(form, config, TOKENS[:, :2]).logits for form in (tied, found)]
    np.testing.assert_allclose(*logits, rtol=2e-5, atol=2e-6)
