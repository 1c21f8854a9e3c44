import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.speculation.plan import expected_tree_tokens, tree_shape
from jaxspec.trees.searches import (
    depth_first_growth,
    expected_tokens_by_size,
    greedy_growth,
    maximal_tree,
    optimal_trees,
    prior_score_growth,
    prior_scores,
    width_first_growth,
)
from jaxspec.trees.topology import NestedTrees

#       root
#     0      1
#    2 3     4
#    |
#    5
RAGGED = NestedTrees(np.array([-1, -1, 0, 0, 1, 2]), np.array([0, 2, 1, 0, 0, 3]))


def paths(tree):
    """Each node as its ranks from the root, which does not depend on the numbering."""
    found = []
    for above, rank in zip(tree.parent.tolist(), tree.rank.tolist()):
        assert -1 <= above < len(found)
        found.append((*(found[above] if above != -1 else ()), rank))
    assert len(set(found)) == len(found)
    return found


def random_tree(rng, size, width=4, depth=5):
    nodes = [()]
    while len(nodes) <= size:
        node = (*nodes[rng.integers(len(nodes))], int(rng.integers(width)))
        if len(node) <= depth and node not in nodes:
            nodes.append(node)
    place = {node: i - 1 for i, node in enumerate(nodes)}
    return NestedTrees(np.array([place[n[:-1]] for n in nodes[1:]]), np.array([n[-1] for n in nodes[1:]]))


def test_maximal_tree_by_hand():
    # Seven nodes on three levels: 3, 2 and 2. Level 1: ranks 0, 1, 2 with products 1, 2, 3. Level 2: (0,0) has product 1; of
    # (0,1) and (1,0), both 2, the earlier parent wins. Level 3: (0,0,0), then (0,0,1) before (0,1,0).
    tree = maximal_tree(7, depth=3)
    assert paths(tree) == [(0,), (1,), (2,), (0, 0), (0, 1), (0, 0, 0), (0, 0, 1)]
    # Seven on level 2: after products 1, 2, 2, 3, 3 come (0,3) and (1,1) with 4 each, again the earlier parent first.
    wide = maximal_tree(14, depth=2)
    assert paths(wide)[7:] == [(0, 0), (0, 1), (1, 0), (0, 2), (2, 0), (0, 3), (1, 1)]
    # At most two children: the third node of level 1 goes on to level 2, and one of those back to the less likely parent.
    narrow = maximal_tree(7, depth=3, max_branching=2)
    assert paths(narrow) == [(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (0, 0, 1)]


def test_scores_by_hand():
    # Cycles end at 5 (accepts 0, 2, 5), 3 (0, 3), nowhere, 4 (1, 4), 2 (0, 2), 0.
    score = prior_scores(RAGGED, np.array([5, 3, -1, 4, 2, 0]))
    assert score.tolist() == [4, 1, 2, 1, 1, 1]
    # Falling: 0 (4), 2 (2), then 1, 3, 4, 5 tie at 1 and keep their numbering.
    tree = prior_score_growth(RAGGED, score)
    assert paths(tree) == [(0,), (0, 1), (2,), (0, 0), (2, 0), (0, 1, 3)]
    assert prior_scores(RAGGED, np.array([], np.int64)).tolist() == [0] * 6


@given(seed=st.integers(0, 200), size=st.integers(1, 40))
def test_counted_scores_sort_as_printed(seed, size):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, size)
    last = rng.integers(-1, size, 25)
    # Plain Python: one point for every node on the path of each cycle.
    expected = [0] * size
    for node in last.tolist():
        while node != -1:
            expected[node] += 1
            node = int(tree.parent[node])
    score = prior_scores(tree, last)
    assert score.tolist() == expected
    by_score = prior_score_growth(tree, score)
    names, printed = paths(tree), np.argsort(-np.array(expected), kind="stable")
    for n in range(1, size + 1):
        # The same scores as the top n of the list; at a tie a child may come before an unrelated later node.
        kept = [names.index(p) for p in paths(by_score)[:n]]
        assert sorted(np.array(expected)[kept]) == sorted(np.array(expected)[printed[:n]])


def test_width_and_depth_by_hand():
    assert paths(width_first_growth(RAGGED)) == [(0,), (2,), (0, 1), (0, 0), (2, 0), (0, 1, 3)]
    # Down: 0, 2, 5. Down again: 1, 3. Level 3 has none left. Then 4.
    assert paths(depth_first_growth(RAGGED)) == [(0,), (0, 1), (0, 1, 3), (2,), (0, 0), (2, 0)]
    # The first node of level 2 waits for its parent; the level's other one comes first.
    late = NestedTrees(np.array([-1, -1, 1, 0]), np.array([0, 1, 0, 0]))
    assert paths(depth_first_growth(late)) == [(0,), (0, 0), (1,), (1, 0)]
    even = maximal_tree(12, depth=4)
    depth = tree_shape(depth_first_growth(even).parent).depth
    assert depth.tolist() == [1, 2, 3, 4] * 3


def test_greedy_by_hand():
    # Best first: rank 1 of depth 1 (0.6), its rank 0 (0.3), rank 0 of depth 1 (0.2), its child (0.1), then 0.06 and 0.02.
    table = np.array([[0.2, 0.6], [0.5, 0.1]])
    tree = greedy_growth(table, 6)
    assert paths(tree) == [(1,), (1, 0), (0,), (0, 0), (1, 1), (0, 1)]
    assert paths(greedy_growth(table, 2, max_branching=1)) == [(1,), (1, 0)]
    assert greedy_growth(table, 0).parent.size == 0


@pytest.mark.network
def test_prices_of_every_size(x64):
    rng = np.random.default_rng(8)
    table = jnp.asarray(rng.uniform(size=(3, 5, 4)))
    tree = random_tree(rng, 26)
    got = jax.jit(lambda t: expected_tokens_by_size(tree, t))(table)
    depth = tree_shape(tree.parent).depth
    assert got.shape == (3, 27)
    assert np.all(np.asarray(got[:, 0]) == 1)
    for n in (1, 13, 26):
        chances = table[:, depth - 1, tree.rank][:, :n]
        np.testing.assert_allclose(got[:, n], expected_tree_tokens(tree.parent[:n], chances), rtol=1e-12)


@pytest.mark.network
def test_no_search_beats_the_programme_in_its_own_model(x64):
    rng = np.random.default_rng(21)
    solve = jax.jit(lambda t: optimal_trees(t, max_nodes=63).expected_tokens)
    gaps = {"width": [], "depth": [], "prior": [], "greedy": []}
    for _ in range(8):
        table = np.sort(rng.dirichlet(np.full(9, 0.4), 5)[:, :8], axis=1)[:, ::-1]
        table = rng.permuted(table, axis=1) if rng.uniform() < 0.3 else table
        shape = maximal_tree(63, depth=5, max_branching=8)
        reach = np.diff(expected_tokens_by_size(shape, jnp.asarray(table)))
        grown = {
            "width": width_first_growth(shape),
            "depth": depth_first_growth(shape),
            "prior": prior_score_growth(shape, reach),
            "greedy": greedy_growth(table, 63),
        }
        best = np.asarray(solve(table))
        values = {name: np.asarray(expected_tokens_by_size(tree, jnp.asarray(table))) for name, tree in grown.items()}
        for name, value in values.items():
            assert np.all(value <= best + 1e-12), name
            gaps[name].append(best - value)
        np.testing.assert_allclose(values["greedy"], best, rtol=1e-12)
        # Of the same shape the best prefix by the exact scores beats any other order.
        assert np.all(values["prior"] >= np.maximum(values["width"], values["depth"]) - 1e-12)
    assert np.mean(gaps["width"]) > 0.05
    assert np.mean(gaps["depth"]) > 0.05


@pytest.mark.wrong_arrays
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: maximal_tree(3, depth=4), "1 to 3"),
        (lambda: maximal_tree(9, depth=2, max_branching=2), "no place"),
        (lambda: width_first_growth(NestedTrees(np.array([0, -1]), np.array([0, 0]))), "number parents first"),
        (lambda: width_first_growth(NestedTrees(np.array([-1, -1]), np.array([1, 1]))), "same rank"),
        (lambda: prior_score_growth(RAGGED, np.zeros(5)), "6 nodes"),
        (lambda: prior_scores(RAGGED, np.array([6])), "to 5"),
        (lambda: greedy_growth(np.array([[0.5, 1.2]]), 1), "chances"),
        (lambda: greedy_growth(np.array([[0.5, 0.2]]), 3), "0 to 2"),
        (lambda: expected_tokens_by_size(RAGGED, jnp.zeros((2, 4))), "3 depths and 4 ranks"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
