"""Programs that run a few times are traced over axes, others by loops: with the same results."""

import jax
import numpy as np

from hwmodels import Workload, catalog, chain_plan, price_cycle, uniform_footprint
from hwmodels.numerics.quick_jit import _small
from hwmodels.speculation.draft_cost import COMPRESSED_COPY


def equations(jaxpr):
    inner = [
        part for each in jaxpr.eqns for part in jax.tree.leaves(list(each.params.values())) if hasattr(part, "eqns")
    ]
    closed = [each.params["jaxpr"].jaxpr for each in jaxpr.eqns if hasattr(each.params.get("jaxpr"), "jaxpr")]
    return len(jaxpr.eqns) + sum(map(equations, [*inner, *closed]))


def test_small_programs_have_the_same_results():
    device, architecture = catalog.device("h100-sxm"), catalog.architecture("qwen3-30b-a3b")
    parts = {
        "workload": Workload(3.0, 700.0, 90.0, 50.0),
        "footprint": uniform_footprint(6.3),
        "draft_cost": COMPRESSED_COPY,
        "plan": chain_plan(np.array([1.0, 5.0], np.float32)),
        "temperature": 0.02,
    }

    def seconds():
        cycle = price_cycle(device, architecture, **parts)
        return cycle.draft.cost.operator_s, cycle.verify.cost.operator_s, cycle.total_s

    ways = [jax.jit(seconds), jax.jit(_small(seconds))]
    sizes = [equations(way.trace().jaxpr.jaxpr) for way in ways]
    assert sizes[1] < sizes[0] / 2
    for large, small in zip(*(way() for way in ways), strict=True):
        np.testing.assert_allclose(small, large, rtol=2e-6)
