import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.trees import (
    ROOT,
    AcceptanceLaw,
    law_table,
    most_children,
    pad_tree,
    public_tree,
    simulate_grid,
    simulate_walks,
    stack_trees,
    tree_from_parents,
    tree_from_paths,
    tree_paths,
    unstack_trees,
)
from jaxspec.trees.expectation import node_acceptance

TREES = [
    tree_from_parents([ROOT, 0, 1]),
    public_tree("quaternary_20"),
    tree_from_paths([(0,), (2,), (2, 1), (0, 0), (0, 0, 0), (0, 2)]),
    tree_from_parents([ROOT] * 3, rank=[1, 0, 4]),
]
# Two contexts, three tasks, no row alike; some rows leave nothing to 1.
TABLES = law_table(
    AcceptanceLaw(jnp.asarray([[0.3], [0.6]]), jnp.asarray([[0.4, 1.1, 2.0]]), jnp.asarray([[0.7, 0.9, 1.0]])),
    depth=4,
    ranks=5,
)


def tokens_of(tree, table):
    """1 plus the chances that each node is reached, path by path, in plain Python."""
    paths = tree_paths(tree)
    return 1 + sum(float(np.prod([table[d][r] for d, r in enumerate(path)])) for path in paths)


@pytest.mark.parametrize("each_node", [False, True])
def test_every_cell_against_plain_sums(each_node):
    trials = 20_000
    grid = simulate_grid(stack_trees(TREES), TABLES, jax.random.key(3), num_trials=trials, each_node=each_node)
    assert grid.mean.shape == (4, 2, 3)
    table = np.asarray(TABLES, np.float64)
    expected = [[[tokens_of(tree, table[c, k]) for k in range(3)] for c in range(2)] for tree in TREES]
    np.testing.assert_allclose(grid.expected, expected, rtol=1e-5)
    assert np.max(np.abs(grid.z_score)) < 4
    # 24 scores of deviation 1, not all of one sign.
    assert 0.4 < np.mean(np.square(grid.z_score)) < 2
    assert np.min(grid.z_score) < 0 < np.max(grid.z_score)
    np.testing.assert_allclose(
        grid.z_score, (np.asarray(grid.mean) - expected) / np.asarray(grid.standard_error), rtol=0.05, atol=0.05
    )


def test_a_cell_is_what_it_would_be_alone(jit):
    trees = stack_trees(TREES)
    run = lambda trees, tables, **options: jit(
        lambda trees, tables: simulate_grid(trees, tables, jax.random.key(7), num_trials=3000, **options)
    )(trees, tables)
    whole = run(trees, TABLES[:, :2], cells_at_once=5)
    wider = stack_trees([pad_tree(tree, size=27) for tree in unstack_trees(trees)[:2]], size=27)
    part = run(wider, TABLES[:, :1], cells_at_once=3)
    np.testing.assert_array_equal(part.mean, whole.mean[:2, :, :1])
    key = jax.random.key(7)
    for place in (2, 1, 0):
        key = jax.random.fold_in(key, place)
    tree = unstack_trees(trees)[2]
    alone = simulate_walks(tree, node_acceptance(tree, TABLES[1, 0]), key, num_trials=3000)
    np.testing.assert_allclose(whole.mean[2, 1, 0], alone.mean, rtol=1e-6)
    np.testing.assert_allclose(whole.standard_error[2, 1, 0], alone.standard_error, rtol=1e-5)


def test_certain_cells_and_too_many_children(jit):
    trees = stack_trees([tree_from_parents([ROOT, 0, 0, 2]), tree_from_parents([ROOT] * 3, rank=[3, 2, 0], size=4)])
    tables = jnp.stack([jnp.zeros((2, 4)), jnp.eye(1, 4).repeat(2, 0)])[:, None]
    run = lambda most: jit(
        lambda trees: simulate_grid(trees, tables, jax.random.key(0), num_trials=50, max_children=most)
    )(trees)
    # Nothing is accepted, or always rank 0, down to the table's two depths.
    grid = run(most_children(trees))
    np.testing.assert_array_equal(grid.mean[:, :, 0], [[1, 3], [1, 2]])
    np.testing.assert_array_equal(grid.z_score, np.zeros((2, 2, 1)))
    assert np.isnan(run(2).mean).tolist() == [[[False], [False]], [[True], [True]]]


def test_no_trace_for_new_values():
    trees, statics = stack_trees(TREES), ("num_trials", "each_node", "max_children", "cells_at_once")
    counted = jax.jit(chex.assert_max_traces(simulate_grid.__wrapped__, n=1), static_argnames=statics)
    means = [
        counted(trees, TABLES * (0.5 + seed / 8), jax.random.key(seed), num_trials=100, max_children=3).mean
        for seed in range(3)
    ]
    assert not np.array_equal(means[0], means[2])


@pytest.mark.wrong_arrays
@pytest.mark.parametrize(
    ("trees", "tables", "options", "words"),
    [
        (TREES[0], TABLES, {}, "stack_trees"),
        (stack_trees(TREES), TABLES[0], {}, "context, task, depth and rank"),
        (stack_trees(TREES), TABLES, {"cells_at_once": 0}, "at least 1"),
        (stack_trees(TREES), TABLES, {"num_trials": 0}, "num_trials is 0"),
    ],
)
def test_what_is_refused(trees, tables, options, words):
    with pytest.raises(ValueError, match=words):
        simulate_grid(trees, tables, jax.random.key(0), **({"num_trials": 5} | options))
