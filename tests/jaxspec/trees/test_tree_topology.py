import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels.speculation import plan
from jaxspec.trees import (
    PADDING,
    PUBLIC_TREES,
    ROOT,
    chain_like_paths,
    chain_paths,
    check_tree,
    children_table,
    is_node,
    k_ary_paths,
    most_children,
    parent_list,
    public_tree,
    sibling_position,
    star_paths,
    tree_from_parents,
    tree_from_paths,
    tree_paths,
)

SIZE = 67  # one compiled shape for all trees


@st.composite
def parent_lists(draw, most=64):
    """Chains, stars and ragged trees: how far each node reaches back decides which."""
    nodes = draw(st.integers(1, most))
    kind = draw(st.sampled_from(["chain", "star", "ragged"]))
    if kind == "chain":
        return list(range(-1, nodes - 1))
    if kind == "star":
        return [ROOT] * nodes
    return [draw(st.integers(ROOT, node - 1)) for node in range(nodes)]


def leaves(tree):
    return [np.asarray(leaf).tolist() for leaf in (tree.parent, tree.depth, tree.rank, tree.num_nodes)]


@pytest.mark.network
def test_a_tree_by_hand():
    # Two guesses for the first token; the first goes on with guesses 0 and 3, the latter with guess 1.
    tree = tree_from_paths([(0, 3, 1), (1,), (0, 0), (0,), (0, 3)], size=6)
    assert leaves(tree) == [[-1, -1, 0, 0, 3, -2], [1, 1, 2, 2, 3, -2], [0, 1, 0, 3, 1, -2], 5]
    assert tree_paths(tree) == [(0,), (1,), (0, 0), (0, 3), (0, 3, 1)]
    # The only child of node 3 has rank 1 and comes first among its siblings.
    assert sibling_position(tree).tolist() == [0, 1, 0, 1, 0, 0]
    none = PADDING
    table = [[0, 1], [2, 3], [none] * 2, [none] * 2, [4, none], [none] * 2, [none] * 2]
    assert children_table(tree, max_children=2).tolist() == table
    assert most_children(tree) == 2


@pytest.mark.network
@settings(max_examples=20)
@given(parent_lists(), st.integers(0, 3))
def test_conversions_return_the_tree(parents, room):
    tree = tree_from_parents(parents, size=len(parents) + room)
    check_tree(tree)
    assert parent_list(tree) == parents
    np.testing.assert_array_equal(tree.depth[: len(parents)], plan.tree_shape(parents).depth)
    assert np.all(np.asarray(tree.depth)[len(parents) :] == PADDING)
    paths = tree_paths(tree)
    assert [len(path) for path in paths] == np.asarray(tree.depth)[: len(parents)].tolist()
    again = tree_from_paths(paths[::-1])
    assert tree_paths(again) == sorted(paths, key=lambda path: (len(path), path))


@settings(max_examples=20)
@given(parent_lists())
def test_children_table_against_lists(parents):
    tree = tree_from_parents(parents, size=SIZE)
    table = np.asarray(jax.jit(children_table)(tree))
    children = [[c for c, above in enumerate(parents) if above == row - 1] for row in range(SIZE + 1)]
    assert [[c for c in row if c != PADDING] for row in table.tolist()] == children
    assert most_children(tree) == max(map(len, children))
    assert np.flatnonzero(is_node(tree)).tolist() == list(range(len(parents)))


@pytest.mark.wrong_arrays
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: tree_from_parents([]), "one or more whole numbers"),
        (lambda: tree_from_parents([0.5]), "one or more whole numbers"),
        (lambda: tree_from_parents([ROOT, 1]), r"parent\[1\] is 1; allowed are -1"),
        (lambda: tree_from_parents([ROOT, PADDING]), r"parent\[1\] is -2"),
        (lambda: tree_from_parents([ROOT, 0], rank=[0]), "1 entries for 2 nodes"),
        (lambda: tree_from_parents([ROOT, 0], rank=[0, -1]), "ranks count from 0"),
        (lambda: tree_from_parents([ROOT, 0, ROOT], rank=[3, 3, 3]), "nodes 0 and 2 are siblings of rank 3"),
        (lambda: tree_from_parents([ROOT, 0], size=1), "size is 1 for 2 nodes"),
        (lambda: tree_from_parents([ROOT], size=2.5), "size is 2.5; it must be a whole number"),
        (lambda: tree_from_parents([ROOT, ROOT], rank=[0, 2**40]), "rank holds 1099511627776; .* 32 bits"),
        (lambda: tree_from_parents([ROOT], rank=[2**70]), "one or more whole numbers"),
        (lambda: tree_from_paths([(2**40,)]), "rank holds 1099511627776"),
        (lambda: tree_from_paths([0, 1]), "path 0 must be a list of ranks"),
        (lambda: tree_from_paths([(0,), ("a",)]), "path .* must be a list of ranks"),
        (lambda: tree_from_paths([(0,), (1, 0)]), r"add the path \(1,\)"),
        (lambda: tree_from_paths([(0,), (0,)]), "there twice"),
        (lambda: tree_from_paths([(0,), ()]), "that of the root"),
        (lambda: tree_from_paths([]), "one or more whole numbers"),
        (lambda: children_table(jax.tree.map(lambda leaf: leaf[None], tree_from_parents([ROOT]))), "use vmap"),
        (lambda: children_table(tree_from_parents([ROOT]), max_children=0), "at least 1"),
        (lambda: public_tree("oak"), "known are medusa_63"),
        (lambda: chain_paths(0), "num_nodes is 0"),
        (lambda: star_paths(0), "num_nodes is 0"),
        (lambda: k_ary_paths(0, depth=2), "branches is 0"),
        (lambda: k_ary_paths(2, depth=0), "depth is 0"),
        (lambda: chain_like_paths(5, rank_cost=0), "rank_cost is 0"),
    ],
)
def test_what_is_refused(build, message):
    with pytest.raises(ValueError, match=message) as refused:
        build()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "nodes", "levels"),
    [
        ("medusa_63", 63, [10, 28, 23, 2]),
        ("eagle_25", 25, [4, 8, 8, 3, 2]),
        ("binary_62", 62, [2, 4, 8, 16, 32]),
        ("ternary_39", 39, [3, 9, 27]),
        ("quaternary_20", 20, [4, 16]),
        ("chain_8", 8, [1] * 8),
        ("chain_like_64", 64, None),
    ],
)
def test_public_trees(name, nodes, levels):
    tree = public_tree(name)
    assert int(tree.num_nodes) == tree.size == nodes
    assert levels is None or np.bincount(np.asarray(tree.depth))[1:].tolist() == levels
    assert sorted(tree_paths(tree)) == sorted(PUBLIC_TREES[name].paths)
    assert PUBLIC_TREES[name].source
