"""A mixture of experts against all of its experts computed, and each token against its neighbours' choices."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels.networks import ExpertSizes
from jaxspec.models import dots
from jaxspec.models.blocks import DenseFeedForward, Experts, StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import abstract_params, forward_text
from jaxspec.models.stored import as_stored

pytestmark = pytest.mark.network

#: Layer 0 is dense.
CONFIG = DecoderConfig(
    vocab_size=13,
    hidden_size=12,
    intermediate_size=7,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=6,
    experts=ExpertSizes(num_experts=6, per_token=2, inner_size=5, shared_size=4),
    feed_forward=(DenseFeedForward(), Experts(), Experts()),
)
TOKENS = np.random.default_rng(1).integers(13, size=(2, 4)).astype(np.int32)


def random_params(config, seed=0):
    rng = np.random.default_rng(seed)
    draw = lambda leaf: jnp.asarray(leaf.shape[-1] ** -0.5 * rng.standard_normal(leaf.shape, np.float32))
    return jax.tree.map(draw, abstract_params(config))


def layer_weights(config, layer=0):
    return {
        name: leaf[layer]
        for name, leaf in random_params(config)["layers"].items()
        if name.startswith(("router", "expert", "shared"))
    }


def all_experts(x, w, config):
    """Every expert of every token, then the chosen ones, weighed by the softmax over their own logits."""
    logits = x @ w["router"].T
    chosen = jnp.argsort(-logits, axis=-1)[..., : config.experts.per_token]
    weights = jax.nn.softmax(jnp.take_along_axis(logits, chosen, axis=-1))
    into = lambda kind: jnp.einsum("bth,eih->btei", x, w[f"expert_{kind}"])
    made = jnp.einsum("btei,ehi->bteh", jax.nn.silu(into("gate")) * into("up"), w["expert_down"])
    routed = (jnp.take_along_axis(made, chosen[..., None], axis=2) * weights[..., None]).sum(axis=2)
    gate = jax.nn.sigmoid(x @ w["shared_router"].T) if config.experts.shared_gated else 1.0
    return routed + gate * ((jax.nn.silu(x @ w["shared_gate"].T) * (x @ w["shared_up"].T)) @ w["shared_down"].T)


def test_matrices_are_multiplied_in_the_type_they_are_stored_in(monkeypatch):
    """Where a unit multiplies bfloat16, widening them first reads and writes each as float32."""
    params, types = as_stored(jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), random_params(CONFIG))), []
    monkeypatch.setattr(dots, "splits", lambda rows, matrix, count: types.append(str(matrix)) or False)
    jax.eval_shape(lambda params: forward_text(params, CONFIG, jnp.asarray(TOKENS)), params)
    assert types.count("bfloat16") >= 3 + 3  # at least the matrices of an expert, and of the shared one
    assert types.count("float32") == 1  # the router's matrix alone is widened


def apply(x, w, config=CONFIG):
    batch, tokens = x.shape[:2]
    nothing = jnp.zeros((batch, tokens), jnp.int32)
    return Experts().apply(x, w, config, StepInput(nothing, jnp.ones((batch, tokens, tokens), bool)))


GATED = dataclasses.replace(CONFIG, experts=dataclasses.replace(CONFIG.experts, shared_gated=True))


@pytest.mark.parametrize(("tokens", "config"), [(1, CONFIG), (3, CONFIG), (40, CONFIG), (3, GATED)])
def test_a_mixture_computes_what_its_chosen_experts_do(tokens, config):
    w = layer_weights(config)
    assert ("shared_router" in w) == config.experts.shared_gated
    x = jnp.asarray(np.random.default_rng(2).standard_normal((2, tokens, 12), np.float32))

    def with_gradients(f):
        both = lambda x, w: (jnp.sin(f(x, w)).sum(), f(x, w))
        return jax.jit(jax.value_and_grad(both, (0, 1), has_aux=True))(x, w)

    ours, theirs = (
        with_gradients(lambda x, w: apply(x, w, config).output),
        with_gradients(lambda x, w: all_experts(x, w, config)),
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5), ours, theirs)


def test_a_network_tells_what_its_routers_chose_and_keeps_to_what_is_allowed():
    params = random_params(CONFIG)
    run = jax.jit(forward_text, static_argnames="config")
    free = run(params, CONFIG, TOKENS).extras
    assert free is not None
    assert free.original.shape == (2, 4, 2, 2)
    np.testing.assert_array_equal(free.original, free.used)
    allowed = np.ones((2, 2, 6), bool)
    banned = int(free.original[0, 0, 0, 0])
    allowed[0, 0, banned] = False  # in the first layer with a router, for the first sequence
    held = run(params, CONFIG, TOKENS, allowed_experts=jnp.asarray(allowed)).extras
    assert held is not None
    np.testing.assert_array_equal(held.original[:, :, 0], free.original[:, :, 0])
    assert banned not in np.asarray(held.used[0, :, 0])
    np.testing.assert_array_equal(held.used[1, :, 0], free.used[1, :, 0])
