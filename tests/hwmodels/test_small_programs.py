"""Programs that run a few times are traced over axes, others by loops: with the same results."""

import jax
import numpy as np

from hwmodels import Workload, catalog, chain_plan, price_cycle, uniform_footprint
from hwmodels.numerics.quick_jit import _small
from hwmodels.speculation.draft_cost import COMPRESSED_COPY


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
    large, small = (len(str(way.trace().jaxpr).splitlines()) for way in ways)
    assert small < large
    for large, small in zip(*(way() for way in ways), strict=True):
        np.testing.assert_allclose(small, large, rtol=2e-6)
