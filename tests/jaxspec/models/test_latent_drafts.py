"""Self-drafts of networks with latent attention and with sinks: cached rows compressed, chains and trees, the target's text."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_latent_attention import CONFIG

from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.kv import compress_cache, prepare_kv, round_kv, token_rows
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.compress.weights import hard_draft
from jaxspec.models.decoder import abstract_params, forward_text
from jaxspec.models.hf_load import load_directory
from jaxspec.speculate.drafts import SelfDraft, SelfDraftParams
from jaxspec.speculate.engine import autoregressive_tree, decode
from jaxspec.speculate.expansion import tree_limits
from jaxspec.speculate.loop import Request
from jaxspec.speculate.sampling import Decoding
from jaxspec.testing.schemes import prepare_at_once
from jaxspec.trees import chain_tree, tree_from_parents

pytestmark = pytest.mark.network

GOLDEN = Path(__file__).parents[2] / "golden" / "hf"
TREE = tree_from_parents([-1, -1, 0, 0, 2, 1])
LIMITS = tree_limits(TREE)


def sharp_params(config, seed=4):
    """A random network that bfloat16 holds, with likely tokens: one that goes on differently from place to place."""
    rng = np.random.default_rng(seed)
    draw = lambda leaf: (
        1.0 * np.ones(leaf.shape) if leaf.ndim == 2 and leaf.shape[0] == 2 else rng.standard_normal(leaf.shape) * 0.4
    ).astype(jnp.bfloat16)
    return jax.tree.map(lambda leaf: jnp.asarray(draw(leaf).astype(np.float32)), abstract_params(config))


def pruned(params, config, knobs):
    """The hard draft, by the inputs of a calibration text."""
    tokens = np.random.default_rng(7).integers(config.vocab_size, size=(2, 16)).astype(np.int32)
    squares = lambda x: jnp.sum(jnp.square(x), axis=(0, 1))
    # Programs, here and below: operation by operation a network is hundreds of them.
    found = jax.jit(lambda params: forward_text(params, config, tokens, keep_activations=squares).activations)(params)
    assert found is not None
    prepared = prepare_at_once(CASSANDRA1, params, {name: jnp.sqrt(value) for name, value in found.items()})
    assert set(prepared) == set(config.matrix_kinds)
    draft = hard_draft(params, prepared, knobs)
    return jax.tree.map(
        jnp.float32, draft | {"layers": {name: _values(leaf) for name, leaf in draft["layers"].items()}}
    )


def _values(leaf):
    return leaf.values() if hasattr(leaf, "values") else leaf


def latent(config):
    params = sharp_params(config)
    knobs = uniform_knobs(CASSANDRA1, config, weight_prune=0.2, weight_cut_bits=3.0, kv_prune=0.1, kv_cut_bits=4.0)
    return config, params, SelfDraftParams(pruned(params, config, knobs), knobs)


def stored(name):
    model = load_directory(GOLDEN / name, dtype=jnp.float32)
    nearby = jax.jit(lambda params: jax.tree.map(lambda x: x + 0.1 * jnp.sign(x) * jnp.abs(x).mean(), params))
    near = nearby(model.params)
    return model.config, model.params, SelfDraftParams(near, uniform_knobs(CASSANDRA1, model.config, kv_cut_bits=3.0))


NETWORKS = {
    "latents of queries": lambda: latent(CONFIG),
    "deepseek_v2_grouped": lambda: stored("deepseek_v2_grouped"),
    "gpt_oss_sinks": lambda: stored("gpt_oss_sinks"),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_chains_and_trees_decode_the_text_that_decoding_alone_does(name):
    config, target, draft = NETWORKS[name]()
    prompts = np.random.default_rng(5).integers(config.vocab_size, size=(3, 4)).astype(np.int32)
    static = {"draft": SelfDraft(config), "config": config, "limits": LIMITS}
    request = Request(prompts, np.arange(3), jax.random.key(0), 12)
    greedily = Decoding(greedy=True, temperature=jnp.float32(1.0))
    of = lambda shape: decode(target, draft, request, shape, greedily, **static)
    alone = of(autoregressive_tree(LIMITS))
    for shape in (TREE, chain_tree(3, LIMITS.nodes + 1)):
        drafted = of(shape)
        np.testing.assert_array_equal(drafted.tokens[:, :16], alone.tokens[:, :16])
        np.testing.assert_array_equal(drafted.margin[:, :16], alone.margin[:, :16])
        assert int(drafted.cycles.sum()) < int(alone.cycles.sum())


def test_a_compressed_row_is_cut_whole():
    # Of each token's row of 6 + 11 elements, the smallest ones go, in whichever part they are.
    tokens = np.random.default_rng(8).integers(13, size=(2, 9)).astype(np.int32)
    heard = jax.jit(lambda params: jax.tree.map(round_kv, forward_text(params, CONFIG, tokens).cache))
    cache = heard(sharp_params(CONFIG))
    knobs = uniform_knobs(CASSANDRA1, CONFIG, kv_prune=0.5, kv_cut_bits=0.0)
    compressed = jax.jit(compress_cache)(cache, knobs)
    assert jax.tree.map(jnp.shape, compressed) == jax.tree.map(jnp.shape, cache)
    for layer in range(2):
        rows, kept = (np.asarray(jax.vmap(token_rows)(of)[layer]) for of in (cache, compressed))
        np.testing.assert_array_equal((kept != 0).sum(axis=-1), 17 - 8)
        np.testing.assert_array_equal(kept[kept != 0], rows[kept != 0])
        assert np.all(np.where(kept == 0, np.abs(rows), 0).max(-1) <= np.where(kept != 0, np.abs(rows), np.inf).min(-1))
    prepared = prepare_kv(CASSANDRA1, cache)
    made = jax.jit(CASSANDRA1.kv.hard)(
        jax.tree.map(lambda leaf: leaf[0], prepared.rows), jax.tree.map(lambda x: x[0], knobs.values)
    )
    read = jax.tree.map(lambda leaf: leaf[0], prepared).read(made)
    np.testing.assert_array_equal(read.value, compressed.value[0])
    np.testing.assert_array_equal(read.key, compressed.key[0])
