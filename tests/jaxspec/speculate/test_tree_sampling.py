"""Sampled trees: texts have the target's distribution; candidates and levels."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.kv import round_kv
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import forward_text
from jaxspec.speculate import loop
from jaxspec.speculate.candidates import propose
from jaxspec.speculate.drafts import SelfDraft, SelfDraftParams
from jaxspec.speculate.expansion import TreeLimits, in_levels, tree_limits
from jaxspec.speculate.growing_tree import GrowingTree
from jaxspec.speculate.measured_ranks import rank_of
from jaxspec.speculate.sampling import Decoding
from jaxspec.trees import (
    PADDING,
    pad_tree,
    tree_from_parents,
    tree_from_paths,
    tree_paths,
)

SAMPLED = Decoding(greedy=False, temperature=np.float32(1.0)).for_program()


def test_candidates_are_ranked_by_logits_though_their_logarithms_tie():
    logits = jnp.array([[[1e-3, 1e-3 + 2e-9, 5.0, -1.0]]])
    proposed = propose(logits, None, SAMPLED, count=4, law="top").tokens[0, 0]
    for rank, token in enumerate(np.asarray(proposed)):
        assert int(rank_of(logits[0], jnp.array([token]))[0]) == rank


def test_rank_breaks_ties_as_top_k_does():
    logits = jnp.array([[0.5, 2.0, 0.5, 2.0, -1.0]])
    order = np.asarray(jax.lax.top_k(logits, 5)[1])[0]
    for rank, token in enumerate(order):
        assert int(rank_of(logits, jnp.array([token]))[0]) == rank


def test_levels_put_inner_nodes_first():
    # Node 0 is a leaf of depth 1, node 1 has children 3 and 2 (depth 2), node 3 has child 4 (depth 3).
    tree = pad_tree(tree_from_parents([-1, -1, 1, 1, 3], rank=[0, 2, 5, 0, 1]), size=7)
    levels = in_levels(tree, TreeLimits(nodes=7, depth=4, ranks=6, width=1))
    np.testing.assert_array_equal(levels.number[:5], [1, 0, 3, 2, 4])
    np.testing.assert_array_equal(levels.tree.parent, [-1, -1, 0, 0, 2, PADDING, PADDING])
    np.testing.assert_array_equal(levels.first[:3], [0, 2, 4])
    np.testing.assert_array_equal(levels.inner, [1, 1, 0, 0])
    assert int(levels.levels) == 3
    assert tree_limits(tree) == TreeLimits(nodes=7, depth=3, ranks=6, width=1)
    assert set(tree_paths(levels.tree)) == set(tree_paths(tree))


VOCAB, NEW, SAMPLES, TEMPERATURE = 4, 3, 20_000, 0.8


SMALL = DecoderConfig(
    vocab_size=VOCAB, hidden_size=8, intermediate_size=10, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=4
)


START = np.array([2, 0, 3], np.int32)


@pytest.fixture(scope="module")
def networks(random_network):
    return random_network(SMALL, 3, sharpness=0.7), random_network(SMALL, 4, sharpness=0.7)


@pytest.fixture(scope="module")
def text_probability(jit, networks):
    new = np.array(list(itertools.product(range(VOCAB), repeat=NEW)), np.int32)
    texts = np.concatenate([np.broadcast_to(START, (len(new), 3)), new], axis=1)
    run = jit(lambda: forward_text(networks[0], SMALL, texts[:, :-1], kv_codec=round_kv, logits_from=2).logits)
    scaled = np.exp(np.asarray(run(), np.float64) / TEMPERATURE)
    p = np.take_along_axis(scaled / scaled.sum(axis=-1, keepdims=True), texts[:, 3:, None], axis=-1)[..., 0]
    return np.prod(p, axis=1)


@pytest.mark.parametrize("shape", ["top", "sampled", "growing"])
def test_sampled_texts_have_the_targets_distribution(jit, networks, text_probability, shape):
    tree = tree_from_paths([(0,), (1,), (0, 0), (0, 2), (1, 1)])
    if shape == "growing":
        tree = GrowingTree(nodes=4, depth=2, branches=2, frontier=2)
    growing = tree if isinstance(tree, GrowingTree) else None
    limits = growing.limits if growing else tree_limits(tree)
    static = dict(draft=SelfDraft(SMALL), config=SMALL, room=NEW, limits=limits, growing=growing)
    law = "sampled" if shape == "sampled" else "top"
    result = jit(functools.partial(loop.decoding_loop.__wrapped__, law=law, **static))(
        networks[0],
        SelfDraftParams(networks[1], uniform_knobs(CASSANDRA1, SMALL, kv_prune=0.3, kv_cut_bits=5.0)),
        np.broadcast_to(START, (SAMPLES, 3)),
        np.arange(SAMPLES, dtype=np.int32),
        None if growing else tree,
        jax.random.key(11),
        SAMPLED.replace(temperature=np.float32(TEMPERATURE)),
        jnp.asarray(NEW),
    )
    new = np.asarray(result.tokens)[:, 3 : 3 + NEW]
    counts = np.bincount(np.ravel_multi_index(tuple(new.T), (VOCAB,) * NEW), minlength=VOCAB**NEW)
    expected = text_probability * SAMPLES
    rare = expected < 10  # in one cell
    counts, expected = (np.append(x[~rare], x[rare].sum()) for x in (counts, expected))
    assert len(expected) > 30
    assert stats.chi2.sf(np.sum((counts - expected) ** 2 / expected), len(expected) - 1) > 1e-4
    assert 1.1 < np.mean(result.cycles) < 2.9  # neither always nor never accepted
