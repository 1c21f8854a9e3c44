"""A sweep says where more work may take less time on its devices, and why there is no front."""

import dataclasses

import numpy as np
import pytest

from hwmodels.chip.technology import Technology
from hwmodels.compute.unit import ROUNDED_ROWS
from jaxspec.studies.sweep.config import SweepConfig
from jaxspec.studies.sweep.grid import plan_sweep
from jaxspec.studies.sweep.pareto import ParetoFront
from jaxspec.studies.sweep.run import _status_of_engine, device_remarks, unknown_columns


@pytest.mark.parametrize(
    ("network", "device", "rounded", "places"),
    [
        ("qwen3-30b-a3b", "elmoe3d-xpu-nmp", True, True),
        ("llama-3.2-1b", "elmoe3d-xpu-nmp", False, True),
        ("qwen3-30b-a3b", "alveo-u280", True, False),
        ("qwen3-30b-a3b", "rtx-4090", False, False),
        ("llama-3.2-1b", "hexagon-v75", False, False),
    ],
)
def test_only_where_it_may(network, device, rounded, places):
    axes = {"workload.batch": [1, 2]}
    notes = device_remarks(plan_sweep(SweepConfig(axes=axes, architecture=(network,), device=(device,))).grid, None)
    assert (f"{device}: {ROUNDED_ROWS}" in notes) == rounded
    assert any(note.startswith(f"{device}: places: what does not fit in one memory") for note in notes) == places


@pytest.mark.parametrize(
    ("engine", "devices", "status"),
    [
        (None, ("h100-sxm",), {}),
        ("vllm", ("h100-sxm",), {"engine": "calibrated"}),
        ("sglang", ("h100-sxm",), {"engine": "calibrated"}),
        ("trtllm", ("h100-sxm",), {}),  # nobody knows what it adds, and nothing is added
        ("jax", ("rtx-4090",), {"engine": "input"}),  # no terms in its file, and those of the catalog are assumed
    ],
)
def test_what_an_engine_adds_has_the_status_of_its_terms(engine, devices, status):
    config = SweepConfig(axes={"workload.batch": [1]}, device=devices, engine=engine)
    assert _status_of_engine(config) == status


@pytest.mark.parametrize("fits", [False, True])
def test_a_sweep_in_which_nothing_fits_says_so(fits):
    front = ParetoFront("held_bytes", "tokens_per_s")
    columns = {name: np.array([1.0]) for name in ("held_bytes", "tokens_per_s", "speedup_vs_bf16_ar")}
    front.add(columns | {"fits": np.array([fits])})
    assert any(note.startswith("no point fits its memory: ") for note in unknown_columns(front)) != fits


def test_an_area_that_a_technology_predicts_is_no_input():
    grid = plan_sweep(SweepConfig(axes={"workload.batch": [1, 2]}, device=("alveo-u280",))).grid
    (base,) = grid.bases
    made = dataclasses.replace(base["device"], technology=Technology(7e-9), chip=None)
    of_node = dataclasses.replace(grid, bases=[base | {"device": made}])
    for one, status in ((grid, b"input"), (of_node, b"predicted")):
        told = one.schema("bf16").metadata
        assert told[b"status:area_m2"] == status
        assert told[b"status:capacity_bytes"] == b"input"
