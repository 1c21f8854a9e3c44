"""Sums of attention do not depend on which tokens lie in the cache, and which in the step."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.models.attention import KVSource, attend
from jaxspec.models.kv_cache import KVCache
from jaxspec.speculate.loop import verified_view

pytestmark = pytest.mark.network

SLOTS, NODES, DEEPEST, KV_HEADS = 40, 6, 6, 2


def chain_of(nodes):
    """Mask and depths of a chain, the rest padding."""
    token = np.arange(NODES + 1)
    known = token <= nodes
    return ((token[None] <= token[:, None]) & known[:, None]) | (token[None] == 0) & known[:, None], token * known


@pytest.mark.parametrize("dim", [6, 64])
@pytest.mark.parametrize("latent", [False, True])
def test_a_token_attends_alike_wherever_its_cycle_began(dim, latent):
    draw = np.random.default_rng(3).standard_normal
    key, value, query, other = (
        draw(shape).astype(np.float32)
        for shape in [(2, KV_HEADS, dim, SLOTS), (2, KV_HEADS, SLOTS, dim), *[(2, SLOTS, 3 * KV_HEADS, dim)] * 2]
    )

    @jax.jit
    def attended(root, mask, depth):
        place = root[0] + depth
        there = jnp.arange(SLOTS) < root[0]  # what is not committed yet is in no slot
        cache = KVCache(jnp.where(there[None, None, None], key, 0), jnp.where(there[None, None, :, None], value, 0))
        view = verified_view(jax.tree.map(lambda x: x[None], cache), root, mask, depth, DEEPEST)
        of_layer = lambda source: KVSource(source.cache.key[0], source.cache.value[0], source.mask)
        own = KVSource(jnp.take(key, place, axis=3), jnp.take(value, place, axis=2), view.mask)
        second = jnp.take(other, place, axis=1) if latent else None
        sources = [*map(of_layer, view.sources), own]
        return attend(jnp.take(query, place, axis=1), sources, value_query=second, order=view.order)

    @functools.partial(jax.jit, static_argnames="position")
    def alone(position):
        seen = KVSource(key, value, jnp.broadcast_to(jnp.arange(SLOTS) <= position, (2, 1, SLOTS)))
        second = other[:, position, None] if latent else None
        return attend(query[:, position, None], [seen], value_query=second)[:, 0]

    for position in (2, 7, 23):
        found = {}
        for above in range(min(DEEPEST, position) + 1):
            root = jnp.full(2, position - above)
            found[above] = np.asarray(attended(root, *map(jnp.asarray, chain_of(NODES)))[:, above])
        found["no draft"] = np.asarray(attended(jnp.full(2, position), *map(jnp.asarray, chain_of(0)))[:, 0])
        for one in found.values():
            np.testing.assert_array_equal(one, found[0])
        np.testing.assert_allclose(found[0], alone(position), rtol=1e-4, atol=1e-5)


def test_without_nodes_the_cache_is_read_as_it_lies():
    cache = KVCache(jnp.zeros((1, 2, 1, 4, 8)), jnp.zeros((1, 2, 1, 8, 4)))
    view = verified_view(cache, jnp.array([3, 5]), jnp.ones((1, 1), bool), jnp.zeros(1, jnp.int32), 0)
    assert view.order is None
    (source,) = view.sources
    assert source.cache is cache
    np.testing.assert_array_equal(source.mask[:, 0].sum(axis=1), [3, 5])
    np.testing.assert_array_equal(view.positions, [[3], [5]])
