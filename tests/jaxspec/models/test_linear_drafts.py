"""Drafts of networks with linear attention: keys and values compressed where there are any; the text stays the target's."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoder_cases import random_params
from linear_cases import HYBRID

from hwmodels.networks import ExpertSizes, LinearSizes
from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.kv import compress_cache, join_kv, prepare_kv, round_kv
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.compress.weights import hard_draft, sum_of_squares
from jaxspec.errors import InputError
from jaxspec.models.blocks import DenseFeedForward, Experts, GatedDeltaNet, GroupedAttention, ShortConvolution
from jaxspec.models.decoder import forward_text
from jaxspec.models.kv_cache import take_sequences
from jaxspec.speculate.drafts import NetworkDraft, SelfDraft, SelfDraftParams
from jaxspec.speculate.drafts.factory import check_draft
from jaxspec.speculate.engine import autoregressive_tree, decode
from jaxspec.speculate.expansion import tree_limits
from jaxspec.speculate.loop import Request
from jaxspec.speculate.sampling import Decoding
from jaxspec.testing.schemes import prepare_at_once
from jaxspec.trees import chain_tree, tree_from_parents

TREE = tree_from_parents([-1, -1, 0, 0, 2, 1])
LIMITS = tree_limits(TREE)
GREEDILY = Decoding(greedy=True, temperature=jnp.float32(1.0))
KNOBS = {"weight_prune": 0.2, "weight_cut_bits": 3.0, "kv_prune": 0.1, "kv_cut_bits": 4.0}
ALONE = dataclasses.replace(HYBRID, attention=(GatedDeltaNet(),))
#: Short convolutions in the place of linear attention.
CONVOLUTIONS = dataclasses.replace(
    HYBRID,
    linear=LinearSizes(0, 20, 0, 1, 3),
    attention=(ShortConvolution(), GroupedAttention(), ShortConvolution()),
)
#: Its layers twice, in one loop.
TWICE = dataclasses.replace(HYBRID, num_layers=6)
#: Experts behind the second layer with linear attention, and behind attention.
EXPERTS = dataclasses.replace(
    HYBRID,
    feed_forward=(DenseFeedForward(), Experts(), Experts()),
    experts=ExpertSizes(num_experts=5, per_token=2, inner_size=7, shared_size=6, shared_gated=True),
)


def sharp(config, seed=6):
    """Random values that bfloat16 holds, of a network with likely tokens."""
    params = random_params(config, seed)
    louder = lambda leaf: (2.0 * leaf if leaf.ndim in (3, 4) else leaf).astype(jnp.bfloat16).astype(jnp.float32)
    return jax.tree.map(louder, params)


def pruned(config, params, knobs):
    """The hard draft, by the inputs of a calibration text."""
    tokens = np.random.default_rng(7).integers(13, size=(2, 16)).astype(np.int32)
    heard = jax.jit(lambda params: forward_text(params, config, tokens, keep_activations=sum_of_squares).activations)
    prepared = prepare_at_once(CASSANDRA1, params, {name: jnp.sqrt(value) for name, value in heard(params).items()})
    assert set(prepared) == set(config.matrix_kinds)
    draft = hard_draft(params, prepared, knobs, config)
    values = lambda leaf: leaf.values() if hasattr(leaf, "values") else leaf
    return jax.tree.map(jnp.float32, draft | {"layers": {name: values(leaf) for name, leaf in draft["layers"].items()}})


def copy_of(config, params):
    knobs = uniform_knobs(CASSANDRA1, config, **KNOBS)
    return SelfDraft(config), SelfDraftParams(pruned(config, params, knobs), knobs)


def network_of(config, params):
    return NetworkDraft(config), jax.tree.map(lambda leaf: leaf + 0.1 * jnp.abs(leaf).mean(), params)


@pytest.mark.network(1)
@pytest.mark.parametrize("draft", [copy_of, network_of])
@pytest.mark.parametrize(
    "config",
    [HYBRID, ALONE, TWICE, EXPERTS, CONVOLUTIONS],
    ids=["mixed", "alone", "twice", "experts", "convolutions"],
)
def test_chains_and_trees_decode_the_text_that_decoding_alone_does(config, draft):
    target = sharp(config)
    static, params = draft(config, target)
    prompts, lengths = np.random.default_rng(5).integers(13, size=(3, 7)).astype(np.int32), np.array([7, 4, 6])
    options = {"draft": static, "config": config, "limits": LIMITS}
    request = Request(prompts, np.arange(3), jax.random.key(0), 24, lengths)
    of = lambda shape: decode(target, params, request, shape, GREEDILY, **options)
    alone = of(autoregressive_tree(LIMITS))
    for shape in (TREE, chain_tree(3, LIMITS.nodes + 1)):
        drafted = of(shape)
        for row, length in enumerate(lengths):
            text = slice(0, length + 24)
            np.testing.assert_array_equal(drafted.tokens[row, text], alone.tokens[row, text])
            # To the last bit: what a token is verified with does not depend on where its cycle began. Experts multiply as
            # many rows at a time as chose them.
            close = 0.0 if config.experts is None else 2e-6
            np.testing.assert_allclose(drafted.margin[row, text], alone.margin[row, text], rtol=close, atol=close)
        assert int(drafted.cycles.sum()) < int(alone.cycles.sum())


@pytest.mark.network
def test_each_prompt_is_decoded_as_it_is_alone():
    target = sharp(HYBRID)
    static, params = network_of(HYBRID, target)
    prompts, lengths = np.random.default_rng(8).integers(13, size=(2, 6)).astype(np.int32), np.array([6, 3])
    run = lambda prompts, ids, lengths=None: decode(
        target,
        params,
        Request(prompts, ids, jax.random.key(0), 10, lengths),
        chain_tree(2, 3),
        GREEDILY,
        draft=static,
        config=HYBRID,
    )
    both = run(prompts, np.arange(2), lengths)
    for row, length in enumerate(lengths):
        one = run(prompts[row : row + 1, :length], np.arange(row, row + 1))
        np.testing.assert_array_equal(both.tokens[row, : length + 10], one.tokens[0, : length + 10])


@pytest.fixture(scope="module")
def cache():
    tokens = np.random.default_rng(9).integers(13, size=(2, 9)).astype(np.int32)
    return jax.jit(lambda params: forward_text(params, HYBRID, tokens, kv_codec=round_kv).cache)(sharp(HYBRID))


def test_codecs_are_of_keys_and_values_alone(cache):
    rounded = round_kv(cache.key)
    np.testing.assert_array_equal(cache.key[2], rounded[2])
    for layer in (0, 1):
        assert np.mean(np.asarray(cache.key[layer] != rounded[layer])) > 0.5
    # Behind each key of attention is room that only linear attention fills.
    assert not np.any(cache.key[2, :, :, 6:])
    assert not np.any(cache.value[:2])


def test_what_linear_attention_keeps_is_never_compressed(cache):
    knobs = uniform_knobs(CASSANDRA1, HYBRID, kv_prune=0.5, kv_cut_bits=3.0)
    read = jax.jit(compress_cache)(cache, knobs)
    assert jax.tree.map(jnp.shape, read) == jax.tree.map(jnp.shape, cache)
    np.testing.assert_array_equal(read.key[:2], cache.key[:2])
    for kept, rows in ((read.key[2, :, :, :6], cache.key[2, :, :, :6]), (read.value[2], cache.value[2])):
        # Of each row of 2 heads of 6 elements half is left.
        assert int((kept != 0).sum()) == rows.size // 2
        assert np.any(kept[kept != 0] != rows[kept != 0])


@pytest.mark.network(1)
@pytest.mark.parametrize("stream", [False, True])
def test_prepared_caches_are_read_as_compressed_ones(cache, stream):
    knobs = uniform_knobs(CASSANDRA1, HYBRID, kv_prune=0.5, kv_cut_bits=3.0)
    parts = [prepare_kv(CASSANDRA1, take_sequences(cache, np.array([row]))) for row in range(2)]
    known = join_kv(jax.device_get(parts) if stream else parts, stream=stream)
    read = jax.jit(compress_cache)(cache, knobs)
    fetched = lambda tree, layer: jax.tree.map(
        lambda leaf: leaf.take(jnp.asarray(layer)).values() if hasattr(leaf, "take") and stream else leaf[layer],
        tree,
        is_leaf=lambda node: hasattr(node, "entry"),
    )
    positions = known.position
    known = dataclasses.replace(known, position=None)
    layer = dataclasses.replace(fetched(known, 2), position=positions[2]).in_layer(np.array([1, 0]))
    made = jax.jit(CASSANDRA1.kv.hard)(layer.rows, {name: value[2] for name, value in knobs.of_layers.items()})
    found = layer.read(made)
    np.testing.assert_array_equal(found.key, read.key[2, ::-1])
    np.testing.assert_array_equal(found.value, read.value[2, ::-1])
    assert found.mixed == cache.mixed
    np.testing.assert_array_equal(fetched(known, 1).kept.key, cache.key[1])


def test_drafts_that_read_a_part_of_the_cache_are_refused():
    with pytest.raises(
        InputError, match="'sparse-kv-25' reads a part of the cached tokens, and the network has linear"
    ):
        check_draft("sparse-kv-25", HYBRID)
