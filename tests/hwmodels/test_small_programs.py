"""Programs that run a few times are traced over axes, others by loops: with the same results."""

import jax
import numpy as np

from hwmodels import Case, Workload, catalog, chain_plan, price, uniform_footprint
from hwmodels.numerics.fast_compile import _small


def test_small_programs_have_the_same_results():
    device, architecture = catalog.device("h100-sxm"), catalog.architecture("qwen3-30b-a3b")
    case = Case(device, architecture, Workload(3.0, 700.0, 90.0, 50.0), uniform_footprint(6.3))
    plan = chain_plan(np.array([1.0, 5.0], np.float32))

    def seconds():
        cycle = price(case, plan, temperature=0.02)
        return cycle.draft.cost.operator_s, cycle.verify.cost.operator_s, cycle.total_s

    ways = [jax.jit(seconds), jax.jit(_small(seconds))]
    large, small = (len(str(way.trace().jaxpr).splitlines()) for way in ways)
    assert small < large
    for large, small in zip(*(way() for way in ways), strict=True):
        np.testing.assert_allclose(small, large, rtol=2e-6)
