"""A target that is sure: the path without loops is that of the general rule."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.speculate.engine import autoregressive_tree
from jaxspec.speculate.expansion import chain_limits
from jaxspec.speculate.tree_rules import verify_greedily, verify_tree
from jaxspec.trees import k_ary_paths, pad_tree, tree_from_paths
from jaxspec.trees.topology import verification_mask

pytestmark = pytest.mark.network

VOCAB, RANKS, SIZE, DEPTH, CASES = 4, 3, 16, 5, 300
TREES = {
    "nothing": [],
    "chain": [(0,) * depth for depth in range(1, 6)],
    "star": [(0,), (1,), (2,)],
    "binary": list(k_ary_paths(2, depth=3)),
    "ranks left out": [(1,), (2,), (1, 2), (2, 0), (2, 2), (1, 2, 1)],
}


@pytest.fixture(scope="module")
def both():
    half = jnp.full((DEPTH, RANKS), 0.5)

    def run(tree, choice, candidates, key):
        sure = verify_tree(tree, jax.nn.one_hot(choice, VOCAB), None, candidates, half, key)
        return sure, verify_greedily(tree, choice, candidates, verification_mask(tree), depths=DEPTH)

    return jax.jit(jax.vmap(run, in_axes=(None, 0, 0, 0)))


@pytest.mark.parametrize("name", TREES)
def test_it_is_the_general_rule(both, name):
    paths, rng = TREES[name], np.random.default_rng(3)
    tree = pad_tree(tree_from_paths(paths), size=SIZE) if paths else autoregressive_tree(chain_limits(SIZE + 1))
    choice = rng.integers(VOCAB, size=(CASES, SIZE + 1), dtype=np.int32)
    candidates = rng.permuted(np.tile(np.arange(VOCAB, dtype=np.int32), (CASES, SIZE + 1, 1)), axis=2)[..., :RANKS]
    expected, found = both(tree, choice, candidates, jax.random.split(jax.random.key(0), CASES))
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    deepest = max(map(len, paths), default=0)
    # Chance alone agrees five times in a row about once in 1000.
    assert set(found.accepted.tolist()) >= set(range(min(deepest, 3) + 1))
