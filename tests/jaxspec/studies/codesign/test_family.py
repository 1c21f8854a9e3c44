"""Drafts side by side: chains and trees gain what the models of one of them say."""

import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import expected_tree_tokens, tokens_per_cycle
from jaxspec.studies.codesign.problem import chain_family, tree_family
from jaxspec.trees.searches import optimal_tree, optimal_trees

pytestmark = pytest.mark.study

CONDITIONAL = jnp.array([0.8, 0.7, 0.9])


def test_chains():
    np.testing.assert_allclose(chain_family(3).tokens(CONDITIONAL), tokens_per_cycle(CONDITIONAL), rtol=1e-6)


def test_trees():
    shares = [0.5, 0.2]
    family = tree_family(CONDITIONAL, shares, [1, 5, 9], deepest=3)
    np.testing.assert_array_equal(family.nodes, [1, 5, 9])
    first = np.asarray(CONDITIONAL)[:, None]
    table = jnp.asarray(np.concatenate([first, (1 - first) * np.array(shares)], axis=1))
    trees = optimal_trees(table, max_nodes=9)
    np.testing.assert_allclose(family.tokens(CONDITIONAL), np.asarray(trees.expected_tokens)[[1, 5, 9]], rtol=1e-5)
    # At another acceptance the shapes stay and the chances move.
    tree, other = optimal_tree(trees, 5), jnp.array([0.6, 0.5, 0.4])
    depth = [int(family.passes[1 + i].sum()) - 1 for i in range(5)]
    chance = [other[d] if r == 0 else (1 - other[d]) * shares[r - 1] for d, r in zip(depth, tree.rank, strict=True)]
    np.testing.assert_allclose(family.tokens(other)[1], expected_tree_tokens(tree.parent, jnp.array(chance)), rtol=1e-5)
