"""`jaxspec sweep`: names and ranges of axes, results against design points one by one, the Pareto front, files."""

import dataclasses
import importlib
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest

import hwmodels
from hwmodels import catalog
from hwmodels.analysis.design_point import design_point
from hwmodels.speculation.chains import priced_chains
from jaxspec.compress.knobs import knob_defaults
from jaxspec.compress.schemes import DEFAULT_SCHEME
from jaxspec.errors import InputError
from jaxspec.studies.sweep.config import EXAMPLE, SweepConfig, read_sweep_config
from jaxspec.studies.sweep.grid import axis_values
from jaxspec.studies.sweep.points_file import read_sweep
from jaxspec.studies.sweep.run import sweep

pytestmark = pytest.mark.study

grid_module = importlib.import_module("jaxspec.studies.sweep.grid")

AXES = {
    "device.memory.bandwidth_bytes_per_s": {"from": 1e11, "to": 9e11, "points": 3, "scale": "log"},
    "workload.batch": [1, 3],
    "acceptance.alpha_token": [0.55, 0.9],
}
CONFIG = SweepConfig(
    axes=AXES,
    architecture=("llama-3.2-1b", "qwen3-30b-a3b"),
    device=("rtx-4090", "cassandra-npu"),
    set={"workload.context_tokens": 300.0},
    max_draft_length=3,
)


@pytest.fixture
def small_chunks(monkeypatch):
    # Twelve points per pair in chunks of eight: the last one is padded.
    monkeypatch.setattr(grid_module, "CHUNK", 9)


def test_every_point_is_the_design_point(tmp_path, small_chunks):
    result = sweep(CONFIG, out=tmp_path / "run")
    columns = read_sweep(tmp_path / "run")
    assert result.points == len(columns["tokens_per_s"]) == 48
    widths = DEFAULT_SCHEME.expected_footprint(knob_defaults(DEFAULT_SCHEME))
    pairs = itertools.product(CONFIG.architecture, CONFIG.device)
    axes = itertools.product(np.geomspace(1e11, 9e11, 3), (1.0, 3.0), (0.55, 0.9))
    points = list(itertools.product(pairs, axes))
    for row in (0, 7, 13, 30, 47):
        (shape, name), (bandwidth, batch, alpha) = points[row]
        assert columns["architecture"][row] == shape
        assert columns["device"][row] == name
        assert columns["workload.batch"][row] == batch
        device = catalog.device(name)
        device = device.replace(memory=device.memory.replace(bandwidth_bytes_per_s=bandwidth))
        load = hwmodels.Workload(batch=batch, context_tokens=300.0)
        case = hwmodels.Case(device, catalog.architecture(shape), load, widths)
        chains = priced_chains(case, hwmodels.Acceptance(jnp.full(3, alpha)))
        expected = jax.jit(design_point)(case, chains.result)
        for key in ("tokens_per_s", "speedup_vs_stored_ar", "held_bytes", "draft_length"):
            assert columns[key][row] == pytest.approx(float(getattr(expected, key)), rel=1e-5)
        energy = columns["energy_per_token_j"][row]
        assert np.isnan(energy) if name == "rtx-4090" else energy > 0
    assert (tmp_path / "run" / "figures" / "pareto.png").stat().st_size > 5000
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert f"{result.pareto.count:,} are beaten by no other" in page
    assert page.count("<svg") == 1
    assert not list((tmp_path / "run").glob("*.part"))


def test_every_column_has_a_true_status(tmp_path, small_chunks):
    result = sweep(CONFIG, out=tmp_path / "run")
    given = {"architecture", "device", *AXES, "capacity_bytes", "area_m2"}
    metadata = pq.read_schema(tmp_path / "run" / "sweep.parquet").metadata
    for name in result.columns:
        status = metadata[f"status:{name}".encode()].decode()
        assert status == ("input" if name in given else "predicted"), name
    assert result.status["capacity_bytes"] == "input"


def test_the_front_has_no_point_that_another_beats(tmp_path, small_chunks):
    result = sweep(
        SweepConfig(axes=AXES, pareto={"x": "workload.batch", "y": "cycle_s", "better_y": "low"}), out=tmp_path
    )
    columns = read_sweep(tmp_path)
    x, y = columns["workload.batch"], columns["cycle_s"]
    for row in result.pareto.points:
        a, b = row["workload.batch"], row["cycle_s"]
        assert not np.any((x <= a) & (y <= b) & ((x < a) | (y < b)))
    assert result.best["tokens_per_s"]["tokens_per_s"] == columns["tokens_per_s"].max()


def test_the_example_is_valid(tmp_path):
    (tmp_path / "sweep.toml").write_text(EXAMPLE)
    config = read_sweep_config(tmp_path / "sweep.toml")
    assert len(axis_values(config, "device.memory.bandwidth_bytes_per_s")) == 24
    np.testing.assert_allclose(axis_values(config, "footprint.draft_weight_bits"), np.linspace(3, 8, 11))


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"workload.batch": [1.0, -4.0]}, "axes.workload.batch is -4; it must be a number >= 1"),
        ({"acceptance.alpha_token": [1.5]}, "it must be a number from 0 to 1"),
        ({"device.memory.bandwidth_bytes_per_s": [0.0]}, "a positive number"),
        ({"device.memory.efficiency": [1.2]}, r"a number in \(0, 1\]"),
        ({"device.matrix_unit.bows": [1.0]}, "did you mean 'device.matrix_unit.rows'"),
    ],
)
def test_impossible_numbers_are_refused_before_a_directory_is_claimed(tmp_path, axes, message):
    with pytest.raises(InputError, match=message):
        sweep(SweepConfig(axes=axes, device=("alveo-v80",)), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_points_that_do_not_fit_are_neither_best_nor_on_the_front(tmp_path, small_chunks):
    config = SweepConfig(
        axes={"workload.batch": [1.0, 8.0, 512.0]}, architecture=("llama-2-13b",), device=("rtx-4090",)
    )
    result = sweep(config, out=tmp_path)
    columns = read_sweep(tmp_path)
    assert columns["fits"].tolist() == [True, False, False]
    assert result.points_that_fit == 1
    assert result.best["tokens_per_s"]["workload.batch"] == 1.0
    assert [row["workload.batch"] for row in result.pareto.points] == [1.0]


def test_a_sweep_of_which_nothing_fits(tmp_path, small_chunks):
    # Nothing is accepted, so that nothing is drafted, whatever that takes.
    axes, never = {"workload.batch": [512.0], "engine.draft_pass_s": [1e-3, 1e-2]}, {"acceptance.alpha_token": 0.0}
    config = SweepConfig(axes=axes, set=never, architecture=("llama-2-13b",), device=("rtx-4090",))
    result = sweep(config, out=tmp_path)
    assert "no result depends on engine.draft_pass_s here: all values give the same points" in result.notes
    assert result.points_that_fit == 0
    assert result.pareto.points == []
    assert result.best == {}


def test_a_calibrated_device_brings_intervals(tmp_path, small_chunks):
    config = SweepConfig(
        axes={"workload.batch": [1, 4], "engine.drafted_token_s": [0.0, 2e-5]},
        architecture=("llama-3.2-1b",),
        device=("rtx-4090", "h100-sxm"),
        max_draft_length=2,
    )
    result = sweep(config, out=tmp_path / "run")
    columns = read_sweep(tmp_path / "run")
    measured = columns["device"] == "h100-sxm"
    for name in ("tokens_per_s", "cycle_s", "speedup_vs_bf16_ar"):
        low, high = columns[f"{name}_low"], columns[f"{name}_high"]
        assert np.isnan(low[~measured]).all()
        assert np.isnan(high[~measured]).all()
        assert (low[measured] < columns[name][measured]).all()
        assert (columns[name][measured] < high[measured]).all()
    assert "errors of the device's kernels" in result.interval_statement
    assert [note for note in result.notes if "not calibrated" in note] == [
        "rtx-4090: the device is not calibrated, so errors of its times are not known"
    ]
    alone = sweep(dataclasses.replace(config, device=("rtx-4090",)), out=tmp_path / "alone")
    assert alone.interval_statement is None
    assert not any(name.endswith("_low") for name in alone.columns)
