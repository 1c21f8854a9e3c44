import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rank_trace_samples import RAGGED, decode, paths_of, renewal

from jaxspec.errors import InputError
from jaxspec.trees import (
    ROOT,
    UNKNOWN,
    RankTraces,
    aat_by_size,
    accepted_nodes,
    cycles_along_text,
    node_reach,
    prior_scores_from_traces,
    tree_from_parents,
    tree_from_paths,
    tree_paths,
)
from jaxspec.trees.searches import depth_first_growth, maximal_tree, width_first_growth

pytestmark = pytest.mark.network


def test_accepted_paths_by_hand():
    rank = [
        [0, 1, 3, 0],  # nodes 0, 2, 5; the tree ends there
        [0, 1, 2, 0],  # 0, 2
        [2, 0, 0, 0],  # 1, 4
        [2, 1, 3, 0],  # 1
        [1, 0, 1, 3],  # no node of rank 1 below the root
        [0, 1, UNKNOWN, UNKNOWN],  # 0, 2, and 5 might have followed
        [0, 0, UNKNOWN, UNKNOWN],  # 0, 3, which has no child
        [UNKNOWN] * 4,
    ]
    found = jax.jit(accepted_nodes)(RAGGED, jnp.asarray(rank, jnp.int32).reshape(2, 4, 4))
    assert found.depth.tolist() == [[3, 2, 2, 1], [0, 2, 2, 0]]
    assert found.node.tolist() == [[5, 2, 4, 1], [ROOT, 2, 3, ROOT]]
    assert found.known.tolist() == [[True] * 4, [True, False, True, False]]
    # A path as long as what was recorded may go on, too.
    short = accepted_nodes(RAGGED, jnp.asarray([[0, 1], [0, 0]], jnp.int32))
    assert short.known.tolist() == [False, True]


def test_cycles_by_hand():
    # Accepted from root 0: node 0, so the next root is 2: nothing, 3: nodes 0, 2, 5, then 7.
    rank = np.full((1, 8, 3), 1, np.int32)
    rank[0, 0], rank[0, 2], rank[0, 3] = [0, 5, 5], [1, 0, 0], [0, 1, 3]
    rank[0, 1], rank[0, 4] = [2, 0, 0], [0, 0, 0]  # not visited
    traces = RankTraces(jnp.asarray(rank), jnp.asarray([8]))
    count = jax.jit(lambda tokens: cycles_along_text(RAGGED, traces, num_tokens=tokens))
    found = count(7)
    assert (found.cycles.tolist(), found.generated.tolist(), found.complete.tolist()) == ([3], [7], [True])
    assert found.accepted.tolist() == [[2, 0, 1, 0, 0, 1, 0, 0]]
    assert count(4).cycles.tolist() == [3]  # the last cycle runs over
    assert count(4).generated.tolist() == [7]
    assert count(3).cycles.tolist() == [2]
    assert count(0).cycles.tolist() == [0]
    assert count(8).generated.tolist() == [8]
    assert count(9).complete.tolist() == [False]  # there is no root 8


@pytest.mark.parametrize(
    "tree",
    [
        RAGGED,
        tree_from_paths([(0,), (1,), (3,), (0, 0), (0, 1), (0, 0, 0), (3, 0), (0, 0, 0, 0), (0, 0, 0, 0, 1)]),
        tree_from_parents([ROOT, 0, 1, 2]),
        tree_from_parents([ROOT] * 7),
        tree_from_parents([ROOT], rank=[4]),
    ],
)
def test_cycles_are_those_of_decoding(toy, tree):
    texts, drafts, traces = toy
    paths = tree_paths(
        tree_from_parents(
            np.asarray(tree.parent)[: int(tree.num_nodes)], rank=np.asarray(tree.rank)[: int(tree.num_nodes)]
        )
    )
    found = jax.jit(lambda tree: cycles_along_text(tree, traces, num_tokens=28))(tree)
    expected = [decode(text, draft, paths, 28) for text, draft in zip(texts, drafts)]
    assert found.cycles.tolist() == [cycles for cycles, _, _ in expected]
    assert found.generated.tolist() == [generated for _, generated, _ in expected]
    assert found.accepted[:, : len(paths)].tolist() == [accepted for *_, accepted in expected]
    assert np.all(np.asarray(found.accepted[:, len(paths) :]) == 0)
    assert bool(jnp.all(found.complete))
    # A cycle gains what it accepts, and one more.
    np.testing.assert_array_equal(found.generated, found.cycles + jnp.sum(found.accepted, axis=1))


@pytest.mark.parametrize("grow", [width_first_growth, depth_first_growth])
def test_every_size_at_once(toy, grow):
    _, _, traces = toy
    growth = grow(maximal_tree(23, depth=4))
    found = aat_by_size(growth, traces, num_tokens=27)
    assert found.verification_length.tolist() == list(range(2, 25))
    for n in range(1, 24):
        cycles, generated = renewal(set(paths_of(growth, n)), traces, 27)
        np.testing.assert_array_equal(found.cycles[n - 1], cycles)
        np.testing.assert_array_equal(found.generated[n - 1], generated)
        np.testing.assert_allclose(found.aat.mean[n - 1], generated.sum() / cycles.sum(), rtol=1e-6)
    # Its own tree, node by node.
    n = 14
    alone = cycles_along_text(tree_from_parents(growth.parent[:n], rank=growth.rank[:n]), traces, num_tokens=27)
    np.testing.assert_array_equal(alone.cycles, found.cycles[n - 1])


def test_scores_from_traces_are_the_papers(toy):
    texts, drafts, traces = toy
    maximal = maximal_tree(15, depth=3)
    paths = paths_of(maximal, 15)
    counted = np.sum([decode(text, draft, paths, 25)[2] for text, draft in zip(texts, drafts)], axis=0)
    np.testing.assert_array_equal(prior_scores_from_traces(maximal, traces, num_tokens=25), counted)
    reach = node_reach(tree_from_parents(maximal.parent, rank=maximal.rank), traces)
    roots = int(np.sum(np.asarray(traces.num_starts) - 2))
    np.testing.assert_allclose(prior_scores_from_traces(maximal, traces) / roots, reach, rtol=1e-6)
    with pytest.raises(InputError, match="record more"):
        prior_scores_from_traces(maximal, traces, num_tokens=50)
