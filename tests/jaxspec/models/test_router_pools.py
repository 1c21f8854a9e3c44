"""Routers among allowed experts: of sequences, of tokens, and a blend of two sets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels.networks import ExpertSizes
from jaxspec.models.router import MoreExperts, route

pytestmark = pytest.mark.network

SIZES = ExpertSizes(num_experts=7, per_token=3, inner_size=4)
RNG = np.random.default_rng(1)
LOGITS = jnp.asarray(RNG.standard_normal((2, 5, 7)), jnp.float32)
RANK = RNG.random((2, 5, 7)).argsort(axis=-1)


def weights_by_expert(routed):
    """ "batch token expert"."""
    at = jax.nn.one_hot(routed.choices.used, SIZES.num_experts)
    return np.asarray(jnp.sum(at * routed.weights[..., None], axis=2))


@pytest.mark.parametrize("weight", [0.0, 0.25, 1.0])
def test_a_blend_lies_between_its_pools(weight):
    few, many = jnp.asarray(RANK < 4), jnp.asarray(RANK < 5)
    blended = route(LOGITS, SIZES, allowed=few, more=MoreExperts(many, jnp.asarray(weight, jnp.float32)))
    parts = [weights_by_expert(route(LOGITS, SIZES, allowed=pool)) for pool in (few, many)]
    np.testing.assert_allclose(
        weights_by_expert(blended), (1 - weight) * parts[0] + weight * parts[1], rtol=1e-6, atol=1e-7
    )
    assert np.abs(parts[0] - parts[1]).max() > 0.1
