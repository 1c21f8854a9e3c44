"""Sampled trees: texts have the target's distribution; candidates and levels."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from every_text import NEW, SMALL, all_texts, chi_square, draft_knobs, prompts_and_ids

from jaxspec.compress.kv import round_kv
from jaxspec.models.decoder import forward_text
from jaxspec.speculate import loop
from jaxspec.speculate.drafts import SelfDraft, SelfDraftParams
from jaxspec.speculate.dynamic_tree import DynamicTree
from jaxspec.speculate.expansion import TreeLimits, in_levels, tree_limits
from jaxspec.speculate.loop import LoopForm, Request
from jaxspec.speculate.sampling import Decoding
from jaxspec.trees import PADDING, pad_tree, tree_from_parents, tree_from_paths, tree_paths

pytestmark = pytest.mark.network

SAMPLED = Decoding(greedy=False, temperature=np.float32(1.0)).for_program()


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


SAMPLES, TEMPERATURE = 20_000, 0.8


@pytest.fixture(scope="module")
def text_probability(networks):
    texts = all_texts(NEW)
    run = jax.jit(lambda: forward_text(networks[0], SMALL, texts[:, :-1], kv_codec=round_kv, logits_from=2).logits)
    scaled = np.exp(np.asarray(run(), np.float64) / TEMPERATURE)
    p = np.take_along_axis(scaled / scaled.sum(axis=-1, keepdims=True), texts[:, 3:, None], axis=-1)[..., 0]
    return np.prod(p, axis=1)


@pytest.mark.parametrize("shape", ["top", "sampled", "dynamic"])
def test_sampled_texts_have_the_targets_distribution(networks, text_probability, shape):
    tree = tree_from_paths([(0,), (1,), (0, 0), (0, 2), (1, 1)])
    if shape == "dynamic":
        tree = DynamicTree(nodes=4, depth=2, branches=2, frontier=2)
    dynamic = tree if isinstance(tree, DynamicTree) else None
    limits = dynamic.limits if dynamic else tree_limits(tree)
    static = dict(draft=SelfDraft(SMALL), config=SMALL, room=NEW, limits=limits, dynamic=dynamic)
    law = "sampled" if shape == "sampled" else "top"
    result = jax.jit(functools.partial(loop.decoding_loop.__wrapped__, form=LoopForm(law=law, **static)))(
        networks[0],
        SelfDraftParams(networks[1], draft_knobs()),
        Request(*prompts_and_ids(SAMPLES), jax.random.key(11), jnp.asarray(NEW)),
        None if dynamic else tree,
        SAMPLED.replace(temperature=np.float32(TEMPERATURE)),
    )
    assert chi_square(result.tokens, text_probability, cells=30) > 1e-4
    assert 1.1 < np.mean(result.cycles) < 2.9  # neither always nor never accepted
