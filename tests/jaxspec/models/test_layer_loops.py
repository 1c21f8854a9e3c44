"""Loops over layers: how many bodies are compiled, and that a network computes the same however its layers are looped over."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoder_cases import CLOSE, random_params
from linear_cases import HYBRID

from hwmodels.networks import ExpertSizes
from jaxspec.models import decoder
from jaxspec.models.blocks import DenseFeedForward, Experts, GatedDeltaNet, GroupedAttention, StepInput
from jaxspec.models.decoder import causal_mask
from jaxspec.models.kv_cache import CachedKV, write_cache
from jaxspec.models.layer_runs import LayerLoop
from jaxspec.models.matrix import Stored

pytestmark = pytest.mark.usefixtures("exact_products")

LINEAR, FULL, DENSE, EXPERTS = GatedDeltaNet(), GroupedAttention(), DenseFeedForward(), Experts()
#: A first layer of its own, two turns of (linear, linear, full with experts), and a rest; windows in an order of their own.
PERIODIC = dataclasses.replace(
    HYBRID,
    num_layers=9,
    attention=(FULL, *(LINEAR, LINEAR, FULL) * 2, LINEAR, LINEAR),
    feed_forward=(DENSE, *(DENSE, DENSE, EXPERTS) * 2, DENSE, DENSE),
    experts=ExpertSizes(num_experts=3, per_token=2, inner_size=7),
    windows=(None, 3, 4, 2, 5, None, 3, 6, 2),
)
TOKENS = np.random.default_rng(2).integers(13, size=(2, 9)).astype(np.int32)


def in_turn(config):
    """The same network with each of its runs in a loop of its own."""
    other = dataclasses.replace(config)
    other.__dict__["loops"] = (LayerLoop(config.runs, 1),)
    return other


def is_close(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **CLOSE), found, expected)


@pytest.mark.network
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_steps_of_decoding_are_the_same(dtype):
    params = jax.tree.map(lambda leaf: leaf.astype(dtype), random_params(PERIODIC))
    params = params | {"layers": {name: Stored.of(leaf) for name, leaf in params["layers"].items()}}

    def two_steps(params, config):
        text = decoder.forward_text(params, config, TOKENS[:, :6])
        cache = text.cache
        mask = np.broadcast_to(np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1]], bool), (2, 3, 3))
        sources = [CachedKV(cache, jnp.ones((2, 3, 6), bool))]
        step = decoder.forward(
            params, config, TOKENS[:, 6:], StepInput(np.broadcast_to([6, 7, 7], (2, 3)), mask, sources)
        )
        return (
            step.logits,
            step.cache,
            write_cache(cache, step.cache, np.array([1, 2])),
        )

    run = jax.jit(two_steps, static_argnums=1)
    found = run(params, PERIODIC)
    expected = jax.jit(lambda params: two_steps(params, in_turn(PERIODIC)))(params)
    is_close(found, expected)


@pytest.mark.network
def test_gradients_are_the_same_and_each_layer_has_its_own():
    with jax.enable_x64(True):
        params = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), jnp.float64), random_params(PERIODIC))
        places = np.broadcast_to(np.arange(9, dtype=np.int32), (2, 9))

        def gradient(config, frugal):
            def loss(params):
                step = StepInput(places, causal_mask(2, 9), frugal=frugal)
                logits = decoder.forward(params, config, TOKENS, step, dtype=jnp.float64).logits
                return jnp.mean(jax.nn.logsumexp(logits, -1) - logits[:, :, 3])

            return jax.jit(jax.grad(loss))(params)

        both = gradient(in_turn(PERIODIC), False), gradient(PERIODIC, True)
        expected, found = jax.tree.map(np.asarray, both)
    largest = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(expected))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-10 * largest), found, expected)
    for leaf in jax.tree.leaves(found["layers"]):
        norms = [float(np.linalg.norm(layer)) for layer in leaf]
        assert min(norms) > 0
        assert all(a != b for a, b in itertools.pairwise(norms))
