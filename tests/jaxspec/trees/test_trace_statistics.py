"""What traces tell of nodes, of depths and of cycles drawn from them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rank_trace_samples import RAGGED, walk

from jaxspec.trees import UNKNOWN, RankTraces, acceptance_table, node_reach, public_tree

pytestmark = pytest.mark.network


def test_reach_by_plain_counting(toy):
    _, _, traces = toy
    rank, starts = np.asarray(traces.rank).tolist(), np.asarray(traces.num_starts)
    tree = RAGGED
    paths = [(0,), (2,), (0, 1), (0, 0), (2, 0), (0, 1, 3)]
    roots = [r for t, n in enumerate(starts) for r in rank[t][:n] if UNKNOWN not in r[:3]]
    assert len(roots) == starts.sum() - 2 * len(starts)  # the last two of each text do not reach down to depth 3
    ends = [walk(set(paths), r) for r in roots]
    expected = [sum(end[: len(p)] == p for end in ends) / len(roots) for p in paths]
    np.testing.assert_allclose(jax.jit(node_reach)(tree, traces), [*expected, 0, 0], rtol=1e-6)
    deep = node_reach(public_tree("chain_8"), traces)  # no root is known down to depth 8
    assert np.all(np.isnan(deep))


def test_tables_by_plain_counting(toy):
    _, _, traces = toy
    depth, ranks = 4, 3
    found = jax.jit(lambda traces: acceptance_table(traces, depth=depth, ranks=ranks))(traces)
    rank, starts = np.asarray(traces.rank).tolist(), np.asarray(traces.num_starts)
    for d in range(depth):
        asked = [
            [r[d] for r in rank[t][:n] if r[d] != UNKNOWN and all(0 <= above < ranks for above in r[:d])]
            for t, n in enumerate(starts)
        ]
        m = np.array([len(seen) for seen in asked])
        assert found.asked[d] == m.sum()
        for r in range(ranks):
            y = np.array([seen.count(r) for seen in asked])
            p = y.sum() / m.sum()
            np.testing.assert_allclose(found.table[d, r], p, rtol=1e-6)
            # Linearized: Σ (y − p m)² / (T (T − 1) mean(m)²).
            error = np.sqrt(np.sum((y - p * m) ** 2) / (len(m) * (len(m) - 1)) / m.mean() ** 2)
            np.testing.assert_allclose(found.standard_error[d, r], error, rtol=1e-4)
    assert np.all(np.sum(found.table, axis=1) <= 1 + 1e-6)
    nobody = acceptance_table(RankTraces(jnp.full((2, 3, 2), 9), jnp.asarray([3, 1])), depth=2, ranks=2)
    assert nobody.asked.tolist() == [4, 0]
    assert nobody.table.tolist() == [[0, 0], [0, 0]]
