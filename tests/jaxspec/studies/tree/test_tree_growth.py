import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.studies.tree.stages import candidate_shape, grow
from jaxspec.trees.rank_traces import RankTraces


@pytest.mark.study(3)
@pytest.mark.parametrize("search", ["prior", "width", "depth", "greedy"])
def test_searches_prefer_what_calibration_accepts(search):
    # Texts on which the draft's second choice is right after its first: the path 0, 1 is worth most.
    ranks = np.array([[[0, 1, 3]] * 3 + [[2, 0, 0]]], np.int32)
    traces = RankTraces(rank=jnp.asarray(ranks), num_starts=jnp.asarray([4], jnp.int32))
    sizes = {"nodes": 4, "depth": 2, "vocabulary": 9}
    growth = grow(search, candidate_shape(search, **sizes), traces, **sizes)
    assert growth.parent.tolist()[0] == -1
    assert growth.parent.size == 4
    if search in ("prior", "greedy"):
        assert (growth.parent[:2].tolist(), growth.rank[:2].tolist()) == ([-1, 0], [0, 1])
        assert (growth.parent[2], growth.rank[2]) == (-1, 2)
    else:
        assert sorted(growth.rank.tolist())[-1] <= 2
