from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.speculation.plan import expected_tree_tokens, tree_shape
from jaxspec.trees.searches import greedy_growth, optimal_tree, optimal_trees, tree_capacity
from jaxspec.trees.topology import NestedTrees

pytestmark = pytest.mark.network


def brute_force(table, nodes, max_branching):
    """Most expected tokens over all sets of `nodes` nodes that are trees, any ranks, in plain Python.

    A node is its path of ranks; sets grow by one node whose parent is in, and each set is visited once.
    """
    depth, width = table.shape
    trees = {frozenset()}
    for _ in range(nodes):
        grown = set()
        for tree in trees:
            for parent in [(), *tree]:
                children = sum(len(node) == len(parent) + 1 and node[: len(parent)] == parent for node in tree)
                if len(parent) == depth or children == max_branching:
                    continue
                grown |= {tree | {(*parent, r)} for r in range(width) if (*parent, r) not in tree}
        trees = grown
    worth = lambda node: np.prod([table[d, r] for d, r in enumerate(node)])
    return max((1 + sum(map(worth, tree)) for tree in trees), default=None)


def tokens(tree, table):
    """Of a tree with ranks, in plain Python."""
    depth, reached = [], []
    for above, rank in zip(tree.parent.tolist(), tree.rank.tolist()):
        depth.append(depth[above] + 1 if above != -1 else 0)
        reached.append(float(table[depth[-1]][rank]) * (reached[above] if above != -1 else 1.0))
    return 1 + sum(reached)


def test_by_hand():
    # Ranks out of order: at depth 1 chances 0.2 and 0.6, at depth 2 0.5 and 0.1. One node: 0.6. Two: 0.6 + 0.6 * 0.5 = 0.9, not
    # 0.8. Three: 0.9 + 0.2. Four: + 0.2 * 0.5 = 0.1. Five: + 0.6 * 0.1. Six: + 0.2 * 0.1; no more fit.
    table = jnp.asarray([[0.2, 0.6], [0.5, 0.1]], jnp.float32)
    found = optimal_trees(table, max_nodes=6)
    np.testing.assert_allclose(found.expected_tokens, [1, 1.6, 1.9, 2.1, 2.2, 2.26, 2.28], rtol=1e-6)
    tree = optimal_tree(found, 4)
    # Level by level: rank 1 then rank 0 below the root, each with its rank 0.
    assert tree.parent.tolist() == [-1, -1, 0, 1]
    assert tree.rank.tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize(
    ("shape", "max_branching", "seed"), [((2, 3), 3, 0), ((3, 3), 2, 2), ((1, 5), 4, 4), ((5, 4), 4, 5)]
)
def test_equals_brute_force_up_to_five_nodes(x64, shape, max_branching, seed):
    rng = np.random.default_rng(seed)
    size = min(5, tree_capacity(shape[0], max_branching))
    solve = jax.jit(partial(optimal_trees, max_nodes=size, max_branching=max_branching))
    for table in rng.uniform(size=(3, *shape)):
        found = solve(table)
        expected = [brute_force(table, n, max_branching) for n in range(size + 1)]
        np.testing.assert_allclose(found.expected_tokens, expected, rtol=1e-12)


@pytest.mark.parametrize("zeros", [0.4])
@pytest.mark.parametrize(
    ("shape", "options"), [((5, 4), {}), ((7, 6), {"max_depth": 3, "max_branching": 2}), ((3, 9), {})]
)
def test_trees_traced_back_are_valid_and_worth_what_is_said(x64, shape, options, zeros):
    rng = np.random.default_rng(11)
    table = rng.uniform(size=shape) * (rng.uniform(size=shape) >= zeros)
    depth, branching = options.get("max_depth", shape[0]), options.get("max_branching", shape[1])
    size = min(37, tree_capacity(depth, branching))
    found = jax.device_get(jax.jit(partial(optimal_trees, max_nodes=size, **options))(table))
    for n in range(size + 1):
        tree = optimal_tree(found, n)
        assert tree.parent.size == n
        assert tokens(tree, table) == pytest.approx(found.expected_tokens[n], rel=1e-12)
        if n:
            levels = tree_shape(tree.parent).depth
            assert levels.max() <= depth
            assert np.all(np.diff(levels) >= 0)
            assert np.unique(tree.parent, return_counts=True)[1].max() <= branching
            assert len(set(zip(tree.parent.tolist(), tree.rank.tolist()))) == n
    by_hardware_model = expected_tree_tokens(tree.parent, jnp.asarray(table[levels - 1, tree.rank]))
    assert float(by_hardware_model) == pytest.approx(found.expected_tokens[-1], rel=1e-12)


@pytest.mark.parametrize(("depth", "width", "branching"), [(5, 4, 4), (4, 3, 2), (1, 4, 3), (3, 1, 1)])
def test_agrees_with_greedy_growth(depth, width, branching):
    size = min(21, tree_capacity(depth, branching))
    solve = jax.jit(partial(optimal_trees, max_nodes=size, max_branching=branching))

    @given(seed=st.integers(0, 999), ties=st.booleans())
    def check(seed, ties):
        table = np.random.default_rng(seed).uniform(size=(depth, width)).astype(np.float32)
        table = np.round(2 * table) / 2 if ties else table  # chances 0, 1/2, 1
        greedy = greedy_growth(table, size, max_branching=branching)
        found = jax.device_get(solve(table))
        for n in range(size + 1):
            prefix = NestedTrees(greedy.parent[:n], greedy.rank[:n])
            assert tokens(prefix, table) == pytest.approx(float(found.expected_tokens[n]), rel=1e-5)

    check()


def test_gradient_is_that_of_the_tree_returned(gradient_check, x64):
    table = jnp.asarray(np.random.default_rng(9).uniform(0.05, 0.95, (4, 3)))
    solve = partial(optimal_trees, max_nodes=12)
    check = gradient_check(lambda t, weight: jnp.dot(weight, solve(t).expected_tokens))
    check(table, jnp.asarray(np.random.default_rng(10).standard_normal(13)))
    # At zero and at one, one-sided; the rank of chance 0 is last and stays it.
    edge = table.at[0, 1].set(0.0).at[1, 2].set(1.0)
    check(edge, jax.nn.one_hot(11, 13), side=jnp.zeros_like(table).at[0, 1].set(1).at[1, 2].set(-1))
    # Two trees of one node are equal, a kink: the gradient is that of the one returned, not of their mean.
    tied = table.at[0].set(jnp.asarray([0.4, 0.7, 0.7]))
    for at, n in ((table, 7), (tied, 1)):
        tree = optimal_tree(solve(at), n)
        depth = tree_shape(tree.parent).depth
        fixed = jax.grad(lambda t: expected_tree_tokens(tree.parent, t[depth - 1, tree.rank]))(at)  # noqa: B023
        np.testing.assert_allclose(check.gradients(at[None], (jax.nn.one_hot(n, 13),))[0], fixed, rtol=1e-12)


def test_a_large_search_reaches_what_greedy_growth_does():
    table = np.random.default_rng(0).dirichlet(np.full(33, 0.3), 10)[:, :32].astype(np.float32)
    found = jax.jit(partial(optimal_trees, max_nodes=128))(table)
    greedy = greedy_growth(table, 128)
    for n in (1, 50, 128):
        reached = tokens(NestedTrees(greedy.parent[:n], greedy.rank[:n]), table)
        assert reached == pytest.approx(float(found.expected_tokens[n]), rel=1e-5)
