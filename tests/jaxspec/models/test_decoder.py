import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoder_cases import CLOSE, CONFIG, PARAMS, POSITIONS, TOKENS, forward_of

from jaxspec.models import decoder
from jaxspec.models.decoder import abstract_params, causal_mask, init_params
from jaxspec.models.kv_cache import CachedKV, KVCache, empty_cache, take_slots, write_cache
from jaxspec.models.norms import rms_norm

pytestmark = pytest.mark.usefixtures("exact_products")

STATIC = ("config", "kv_codec", "dtype", "dot_dtype", "keep_activations", "frugal")
forward = jax.jit(forward_of, static_argnames=STATIC)


def run(tokens=TOKENS, positions=POSITIONS, mask=None, *, params=PARAMS, config=CONFIG, **options):
    mask = causal_mask(*tokens.shape) if mask is None else mask
    return forward(params, config, tokens=tokens, positions=positions, mask=mask, **options)


def slots_first(cache):
    """(keys, values), each "layer batch slot kv_head head_dim"."""
    return np.moveaxis(np.asarray(cache.key), 4, 2), np.moveaxis(np.asarray(cache.value), 3, 2)


@pytest.mark.network
def test_init_params_has_the_abstract_shapes_and_a_scale_that_keeps_activations_of_order_one():
    params = jax.jit(init_params, static_argnums=0)(CONFIG, jax.random.key(0))
    chex.assert_trees_all_equal_shapes_and_dtypes(params, abstract_params(CONFIG))
    np.testing.assert_allclose(np.std(params["layers"]["q"]), CONFIG.hidden_size**-0.5, rtol=0.1)
    np.testing.assert_array_equal(params["final_norm"], 1)
    assert np.std(run(params=params).logits) < 5


@pytest.mark.network
def test_the_forward_of_texts_is_the_forward_with_a_causal_mask():
    text = jax.jit(decoder.forward_text, static_argnums=1)(PARAMS, CONFIG, TOKENS)
    chex.assert_trees_all_close(text, run(), **CLOSE)
    assert text.logits.shape == (2, 9, 13)
    assert (text.cache.num_layers, text.cache.num_slots) == (2, 9)


@pytest.mark.network
def test_a_deep_network_is_no_longer_program_than_a_shallow_one():
    def length(layers):
        config = dataclasses.replace(CONFIG, num_layers=layers)
        cache = jax.eval_shape(lambda: empty_cache(config, 2, 15))

        def total(params, cache):
            seen = [CachedKV(cache, jnp.ones((2, 9, 15), bool))]
            options = dict(tokens=TOKENS, positions=POSITIONS, mask=causal_mask(2, 9), sources=seen)
            return forward_of(params, config, **options).logits.sum()

        gradient = jax.jit(jax.value_and_grad(total))
        return len(gradient.lower(abstract_params(config), cache).as_text().splitlines())

    assert length(3) == length(40)


@pytest.mark.parametrize("first_slot", [(0, 0), (2, 4)])
def test_token_by_token_with_a_cache_equals_all_at_once(first_slot):
    # Sequence 1 starts two steps late, so that its offset in the cache and its position are not those of sequence 0.
    first_slot, whole = np.array(first_slot), run().logits
    cache, length = empty_cache(CONFIG, 2, 15), np.array([0, 0])
    tokens = np.stack([np.pad(TOKENS[0], (0, 2)), np.pad(TOKENS[1], (2, 0))])
    for step in range(11):
        slots = np.arange(15)
        seen = (slots >= first_slot[:, None]) & (slots < (first_slot + length)[:, None])
        result = run(
            tokens[:, step : step + 1],
            length[:, None],
            np.ones((2, 1, 1), bool),
            sources=[CachedKV(cache, seen[:, None])],
        )
        cache = write_cache(cache, result.cache, first_slot + length)
        for sequence, active in enumerate((step < 9, step >= 2)):
            if active:
                np.testing.assert_allclose(result.logits[sequence, 0], whole[sequence, length[sequence]], **CLOSE)
        length += np.array([step < 9, step >= 2])


@pytest.mark.network
def test_the_order_of_tokens_in_a_step_does_not_matter():
    # Permuting tokens, positions and both sides of the mask permutes the logits: rows have no place of their own.
    order = np.random.default_rng(2).permutation(9)
    mask = np.asarray(causal_mask(2, 9))
    permuted = run(TOKENS[:, order], POSITIONS[:, order], mask[:, order][:, :, order])
    whole = run()
    np.testing.assert_allclose(permuted.logits, whole.logits[:, order], **CLOSE)
    for part, other in zip(slots_first(permuted.cache), slots_first(whole.cache)):
        np.testing.assert_allclose(part, other[:, :, order], **CLOSE)


# A tree whose nodes come in no helpful order; -1 is the root's parent. Siblings share a position.
PARENTS = np.array([3, 3, 0, -1, 0, 1, 2, 4, 1])


def paths(parents):
    """Each node's path from the root to itself."""

    def path(node):
        return [] if node < 0 else [*path(parents[node]), node]

    return [path(node) for node in range(len(parents))]


@pytest.mark.parametrize("prefix", [0, 3])
def test_every_node_of_a_tree_gets_the_logits_of_its_own_path(prefix):
    # The first `prefix` tokens of the text come through the cache, the tree hangs below them.
    routes = paths(PARENTS)
    depth = np.array([len(route) - 1 for route in routes])
    assert len(np.unique(depth)) < len(depth)
    mask = np.zeros((2, 9, 9), bool)
    for node, route in enumerate(routes):
        mask[:, node, route] = True
    options = {}
    if prefix:
        cache = run().cache
        slots = np.broadcast_to(np.arange(9) < prefix, (2, 9, 9))
        options = {"sources": [CachedKV(cache, slots)]}
    nodes = np.random.default_rng(3).integers(13, size=(2, 9)).astype(np.int32)
    tree = run(nodes, np.broadcast_to(prefix + depth, (2, 9)), mask, **options)
    for node, route in enumerate(routes):
        text = np.concatenate([TOKENS[:, :prefix], nodes[:, route]], axis=1)
        width = text.shape[1]
        text = np.pad(text, ((0, 0), (0, 9 - width)))  # causal: what follows does not matter
        np.testing.assert_allclose(tree.logits[:, node], run(text).logits[:, width - 1], **CLOSE)


@pytest.mark.network
def test_a_shared_prefix_a_cache_and_the_step_are_read_as_one_cache():
    # Both texts begin alike: three tokens, computed once. Sequence 1 has one token more in its own cache.
    text = np.concatenate([np.broadcast_to(TOKENS[:1, :3], (2, 3)), TOKENS[:, 3:]], axis=1)
    whole, own = run(text), np.array([2, 3])
    prefix = KVCache(key=whole.cache.key[:, :1, ..., :3], value=whole.cache.value[:, :1, :, :3])
    rest = take_slots(whole.cache, np.broadcast_to(3 + np.arange(4), (2, 4)))
    place = (3 + own)[:, None] + np.arange(2)
    options = dict(
        tokens=np.take_along_axis(text, place, axis=1), positions=place.astype(np.int32), mask=causal_mask(2, 2)
    )
    seen = np.broadcast_to((np.arange(4) < own[:, None])[:, None], (2, 2, 4))
    shared = CachedKV(prefix, np.ones((2, 2, 3), bool))
    parts = run(**options, sources=[shared, CachedKV(rest, seen)])
    one = run(**options, sources=[CachedKV(whole.cache, np.arange(9) < place[:, :1, None].repeat(2, 1))])
    np.testing.assert_allclose(parts.logits, one.logits, **CLOSE)
    np.testing.assert_allclose(parts.logits, np.take_along_axis(whole.logits, place[..., None], axis=1), **CLOSE)
    # Slots that the masks hide change nothing at all, in the shared part and in the own one.
    loud = lambda cache, slots: jax.tree.map(
        lambda part: jnp.where(_slots_like(part, cache.num_slots, slots), 1e3, part), cache
    )
    hidden = shared._replace(mask=shared.mask & (np.arange(3) != 1))
    quiet = run(**options, sources=[hidden, CachedKV(rest, seen)])
    noisy = run(**options, sources=[hidden._replace(cache=loud(prefix, [1])), CachedKV(loud(rest, [3]), seen)])
    np.testing.assert_array_equal(noisy.logits, quiet.logits)
    assert np.abs(quiet.logits - parts.logits).max() > 1e-3


def _slots_like(part, count, slots):
    """Whether an element of keys or values belongs to one of these slots."""
    chosen = np.isin(np.arange(count), slots)
    return chosen if part.shape[-1] == count else chosen[:, None]


@pytest.mark.network
def test_the_codec_is_applied_before_anything_reads_keys_and_values():
    # Rounding to multiples of a step; the written KV is on that grid, and a codec that keeps nothing leaves attention
    # nothing to tell tokens by: its output is zero, and each logit depends on its own token alone.
    coarse = run(kv_codec=_to_grid)
    for part in slots_first(coarse.cache):
        np.testing.assert_allclose(part / STEP, np.round(part / STEP), atol=1e-5)
    np.testing.assert_array_equal(coarse.cache.value[0], _to_grid(run().cache.value[0]))
    assert np.abs(coarse.logits - run().logits).max() > 1e-3
    blind = run(kv_codec=jnp.zeros_like).logits
    other = run(np.where(np.arange(9) == 4, TOKENS, 0), kv_codec=jnp.zeros_like).logits
    np.testing.assert_allclose(blind[:, 4], other[:, 4], **CLOSE)


STEP = 0.25


def _to_grid(x):
    return jnp.round(x / STEP) * STEP


@pytest.mark.network
def test_kept_activations_are_the_inputs_of_the_matrices():
    plain, kept = run(), run(keep_activations=jnp.asarray)
    assert plain.activations is None
    np.testing.assert_allclose(kept.logits, plain.logits, **CLOSE)
    assert {name: value.shape for name, value in kept.activations.items()} == {
        "qkv": (2, 2, 9, 20),
        "o": (2, 2, 9, 24),
        "gate_up": (2, 2, 9, 20),
        "down": (2, 2, 9, 14),
    }
    np.testing.assert_allclose(
        kept.activations["qkv"][0],
        rms_norm(PARAMS["embed"][TOKENS], PARAMS["layers"]["attention_norm"][0], CONFIG.norm_eps),
        **CLOSE,
    )
    values = jnp.einsum("lbti,loi->lbto", kept.activations["qkv"], PARAMS["layers"]["v"])
    np.testing.assert_allclose(values.reshape(2, 2, 9, 2, 6), slots_first(kept.cache)[1], **CLOSE)
