"""Intervals of a sweep: each device's own errors of kernels and of an engine's cycles."""

import dataclasses
from statistics import NormalDist

import numpy as np
import pytest

from hwmodels import catalog
from hwmodels.compute.unit import ErrorInterval
from jaxspec.studies.engine_pricing import engine_scatter
from jaxspec.studies.sweep.config import SweepConfig
from jaxspec.studies.sweep.grid import plan_sweep
from jaxspec.studies.sweep.run import _intervals_in_words

pytestmark = pytest.mark.study


def test_intervals_hold_each_devices_own_scatter_of_cycles():
    config = SweepConfig(
        axes={"acceptance.alpha_token": [0.93, 0.97]},
        architecture=("llama-3.1-70b",),
        device=("h100-sxm", "h200-sxm"),
        engine="vllm",
        max_draft_length=2,
    )
    grid = plan_sweep(config).grid
    assert grid.scatters == (catalog.engine_scatter("vllm")["other drafts"],) * 2
    assert _intervals_in_words(grid).endswith("the scatter of the engine's cycles")
    host = dataclasses.replace(
        grid.bases[0]["device"].matrix_unit, spreads=(ErrorInterval("cycles", 32.0, 0.8, 1.25, 0.9),)
    )
    own = engine_scatter("jax", device=grid.bases[0]["device"].replace(matrix_unit=host))
    wide, narrow = (
        dataclasses.replace(grid, bases=grid.bases[:1], pairs=grid.pairs[:1], scatters=one) for one in ((own,), ())
    )
    ends = [next(one.columns(range(1))) for one in (wide, narrow)]
    reach = [np.log(one["cycle_s_high"] / one["cycle_s_low"]) / 2 / NormalDist().inv_cdf(0.95) for one in ends]
    np.testing.assert_allclose(reach[0], np.hypot(reach[1], own), rtol=1e-3)
