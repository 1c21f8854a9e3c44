import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.trees import (
    ROOT,
    public_tree,
    tree_from_parents,
    tree_mask,
    tree_paths,
    tree_positions,
    verification_mask,
    verification_positions,
)

pytestmark = pytest.mark.network

SIZES = (64, 67)  # an exact number of doublings, and one node that needs another


def ancestors_climbed(parents, size):
    """The mask by climbing from each node to the root."""
    mask = np.zeros((size, size), bool)
    for node in range(len(parents)):
        above = node
        while above != ROOT:
            mask[node, above] = True
            above = parents[above]
    return mask


mask_of = jax.jit(tree_mask)


def test_a_mask_by_hand():
    # 0 and 1 follow the root, 2 follows 1, 3 follows 0, 4 follows 3; one entry of padding.
    tree = tree_from_parents([ROOT, ROOT, 1, 0, 3], size=6)
    rows = ["100000", "010000", "011000", "100100", "100110", "000000"]
    np.testing.assert_array_equal(tree_mask(tree), [[c == "1" for c in row] for row in rows])
    assert tree_positions(tree).tolist() == [1, 1, 2, 2, 3, 0]
    assert verification_positions(tree).tolist() == [0, 1, 1, 2, 2, 3, 0]
    rows = ["1000000", *("1" + row for row in rows[:5]), "0000000"]
    np.testing.assert_array_equal(verification_mask(tree), [[c == "1" for c in row] for row in rows])


@settings(max_examples=20)
@given(st.data(), st.sampled_from(SIZES))
def test_masks_against_climbing(data, size):
    nodes = data.draw(st.integers(1, 64))
    # Far back: a star; not far: a chain.
    reach = data.draw(st.sampled_from([1, 2, 64]))
    parents = [data.draw(st.integers(max(ROOT, node - reach), node - 1)) for node in range(nodes)]
    np.testing.assert_array_equal(mask_of(tree_from_parents(parents, size=size)), ancestors_climbed(parents, size))


def test_a_node_sees_the_prefixes_of_its_path():
    tree = public_tree("medusa_63")
    paths = tree_paths(tree)
    prefix = [[long[: len(short)] == short for short in paths] for long in paths]
    np.testing.assert_array_equal(tree_mask(tree), prefix)
