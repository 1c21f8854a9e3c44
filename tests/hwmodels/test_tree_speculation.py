"""Draft trees: shape by hand, expected tokens against enumeration, time against chains and against counting."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import cycle_time, tokens_per_cycle, work_time
from hwmodels.operators import draft_operators, verify_operators
from hwmodels.tree_speculation import ROOT, expected_tree_tokens, tree_cycle_time, tree_shape

#     root -> 0, 1;  0 -> 2, 3;  1 -> 4;  3 -> 5;  5 -> 6
RAGGED = [ROOT, ROOT, 0, 0, 1, 3, 5]
CHAIN = [ROOT, 0, 1, 2, 3]
STAR = [ROOT] * 5


def test_shape_by_hand():
    shape = tree_shape(RAGGED)
    assert shape.depth.tolist() == [1, 1, 2, 2, 2, 3, 4]
    # The root; 0 and 1; 3 of depth 2; 5 of depth 3.
    assert shape.expanded.tolist() == [1, 2, 1, 1]
    # Each sees itself, the nodes above it and the root; the root sees itself.
    assert float(shape.visible_tokens) == pytest.approx((1 + 2 + 2 + 3 + 3 + 3 + 4 + 5) / 8)
    assert tree_shape(STAR).expanded.tolist() == [1]
    assert tree_shape(CHAIN).expanded.tolist() == [1] * 5


@pytest.mark.parametrize("parent", [[], [0], [ROOT, 1], [ROOT, -2], [ROOT, 0.5], [[ROOT]]])
def test_what_is_no_tree_is_refused(parent):
    with pytest.raises(ValueError, match="parent"):
        tree_shape(parent)


def test_expected_tokens_by_enumeration():
    chances = np.array([0.5, 0.3, 0.25, 0.6, 0.7, 0.9, 0.4])
    children = {node: [i for i, above in enumerate(RAGGED) if above == node] for node in (ROOT, *range(7))}

    def outcomes(node):
        """Accepted path below a node, with its probability: one child, or none."""
        stop = 1.0 - sum(chances[child] for child in children[node])
        yield 0, stop
        for child in children[node]:
            for length, chance in outcomes(child):
                yield 1 + length, chances[child] * chance

    total = sum(chance for _, chance in outcomes(ROOT))
    mean = sum((1 + length) * chance for length, chance in outcomes(ROOT))
    assert total == pytest.approx(1)
    assert float(expected_tree_tokens(RAGGED, chances)) == pytest.approx(mean, rel=1e-6)


def test_a_chain_is_a_tree(small, toy_device, workload, footprint):
    conditional = jnp.array([0.9, 0.8, 0.5, 0.7, 0.2])
    assert float(expected_tree_tokens(CHAIN, conditional)) == pytest.approx(float(tokens_per_cycle(conditional)[-1]))
    arguments = {"workload": workload, "footprint": footprint}
    tree = tree_cycle_time(toy_device, small, parent=CHAIN, **arguments)
    chain = cycle_time(toy_device, small, draft_length=5, **arguments)
    assert float(tree.total_s) == pytest.approx(float(chain.total_s), rel=1e-5)
    assert float(tree.draft_step_s) == pytest.approx(float(chain.draft_step_s), rel=1e-5)


def test_a_ragged_tree_step_by_step(small, toy_device, workload, footprint):
    found = tree_cycle_time(toy_device, small, workload=workload, footprint=footprint, parent=RAGGED)
    draft_s = 0.0
    for tokens in (1, 2, 1, 1):
        work = draft_operators(small, workload, footprint=footprint, tokens=tokens, visible_new_tokens=1.0)
        draft_s += float(work_time(toy_device, work).total_s)
    work = verify_operators(small, workload, footprint=footprint, verify_tokens=8, visible_new_tokens=23 / 8)
    verify_s = float(work_time(toy_device, work).total_s)
    assert float(found.verify_s) == pytest.approx(verify_s, rel=1e-5)
    assert float(found.total_s) == pytest.approx(draft_s + verify_s, rel=1e-5)


def test_wider_is_cheaper_to_draft_than_deeper(small, toy_device, workload, footprint):
    star, chain = (
        tree_cycle_time(toy_device, small, workload=workload, footprint=footprint, parent=parent)
        for parent in (STAR, CHAIN)
    )
    assert float(star.total_s) < 0.6 * float(chain.total_s)


def test_gradient_and_nodes(check_gradient):
    check_gradient(lambda p: expected_tree_tokens(RAGGED, p), jnp.linspace(0.1, 0.45, 7))
    with pytest.raises(ValueError, match="must be the 7 nodes"):
        expected_tree_tokens(RAGGED, jnp.ones(6))
    batched = jax.vmap(lambda p: expected_tree_tokens(RAGGED, p))(jnp.ones((3, 7)) * 0.3)
    assert batched.shape == (3,)
    assert all(a == b for a, b in itertools.pairwise(batched.tolist()))
