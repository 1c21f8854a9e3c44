"""A sweep says where more work may take less time on its devices, and why there is no front."""

import dataclasses

from hwmodels.chip.technology import Technology
from jaxspec.studies.sweep.config import SweepConfig
from jaxspec.studies.sweep.grid import plan_sweep


def test_an_area_that_a_technology_predicts_is_no_input():
    grid = plan_sweep(SweepConfig(axes={"workload.batch": [1, 2]}, device=("alveo-u280",))).grid
    (base,) = grid.bases
    made = dataclasses.replace(base["device"], technology=Technology(7e-9), chip=None)
    of_node = dataclasses.replace(grid, bases=[base | {"device": made}])
    for one, status in ((grid, b"input"), (of_node, b"predicted")):
        told = one.schema("bf16").metadata
        assert told[b"status:area_m2"] == status
        assert told[b"status:capacity_bytes"] == b"input"
