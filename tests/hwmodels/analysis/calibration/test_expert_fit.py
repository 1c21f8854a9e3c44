"""Experts of a layer fitted to launches measured on an H200, and how the tables spread tokens."""

import csv
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from kernel_samples import write_tables

from hwmodels import Routing, busiest_load, touched_experts
from hwmodels.analysis.calibration.experts import (
    CACHE_BYTES,
    ExpertTable,
    expert_formats,
    expert_parameters,
    expert_roofline,
    expert_table,
    fit_experts,
    modelled_rows,
    predict_experts,
)
from hwmodels.analysis.calibration.kernel_tables import (
    EVEN,
    DataSheet,
    KernelTableError,
    TableName,
    drawn_loads,
    popularity_in_table,
    touched_in_table,
)
from hwmodels.analysis.calibration.report import half_of_groups
from hwmodels.catalog.calibrations import calibration_record

SHEET = DataSheet(989e12, 4.8e12, 132.0)
SAMPLE = Path(__file__).with_name("expert_launches_h200.csv")


def sample():
    lines = [line for line in SAMPLE.read_text().splitlines() if not line.startswith("#")]
    rows = list(csv.DictReader(lines))
    texts = {name: np.array([row[name] for row in rows]) for name in ("distribution", "network")}
    names = ("tokens", "hidden_size", "inner_size", "experts_per_token", "num_experts", "gated")
    numbers = {name: np.array([float(row[name]) for row in rows]) for name in names}
    sizes = zip(
        texts["distribution"], *(numbers[n].astype(int) for n in ("tokens", "num_experts", "experts_per_token"))
    )
    touched = np.array([touched_in_table(str(d), int(t), int(e), int(k)) for d, t, e, k in sizes])
    seconds = np.array([1e-3 * float(row["milliseconds"]) for row in rows])
    return ExpertTable(**numbers, **texts, touched=touched, seconds=seconds, weight_bits=16.0)


@pytest.mark.device_matrix
def test_fit_to_measured_launches_describes_networks_held_out():
    table = sample()
    assert modelled_rows(table, SHEET, CACHE_BYTES["h200_sxm"]).all()
    train = half_of_groups(table.network.tolist())
    found = fit_experts(table, SHEET, train)
    error = np.abs(found.predicted_s / table.seconds - 1)
    assert error[~train].mean() < 0.08
    assert np.median(error[~train]) < 0.05
    roofline = expert_roofline(table, SHEET)
    constant = np.median(table.seconds[train] / roofline[train])
    assert error[~train].mean() < 0.5 * np.abs(constant * roofline / table.seconds - 1)[~train].mean()
    assert len(expert_parameters(16.0)) == len(expert_parameters(4.0)) == len(found.fit.estimates) == 6


@pytest.mark.device_matrix
def test_the_catalogs_numbers_describe_the_sample():
    entry, table = calibration_record("h200-sxm")["experts"]["bfloat16"], sample()
    numbers = entry["coefficients"]
    rows = {name: jnp.asarray(values) for name, values in table.conditions().items()}
    error = np.abs(np.asarray(predict_experts(SHEET, 16.0)(numbers, rows)) / table.seconds - 1)
    assert error.mean() < 0.06
    assert entry["errors"]["all networks fitted"]["mean"] == pytest.approx(error.mean(), abs=0.02)


def test_touched_experts_of_a_table():
    assert touched_in_table(EVEN, 5, 128, 8) == 40
    assert touched_in_table(EVEN, 50, 128, 8) == 128
    by_tokens = [touched_in_table("power_law_1.2", tokens, 128, 8) for tokens in (1, 4, 16, 64, 1000)]
    assert by_tokens[0] == 8
    assert np.all(np.diff(by_tokens) > 0)
    assert by_tokens[-1] <= 128
    # Measured: 0.157 ms of 25 µs at start and 2.13 µs per expert (9.4 MB at 4.43 TB/s) are about 62 of 128 experts.
    assert by_tokens[2] == pytest.approx(60, abs=4)
    with pytest.raises(ValueError, match="known: balanced"):
        touched_in_table("zipf", 5, 128, 8)


@pytest.mark.device_matrix(1)
@pytest.mark.parametrize(("tokens", "experts", "chosen"), [(64, 128, 8), (8192, 128, 8), (700, 96, 5), (2048, 256, 8)])
def test_popularity_of_a_table(tokens, experts, chosen):
    popularity = popularity_in_table("power_law_1.2", tokens, experts, chosen)
    assert popularity.sum() == pytest.approx(1.0)
    assert np.all(np.diff(popularity) <= 0)
    routing = Routing(popularity=jnp.asarray(popularity, jnp.float32))
    # Independent tokens touch as many experts as the table's.
    touched = float(touched_experts(experts, chosen, tokens, routing=routing))
    assert touched == pytest.approx(touched_in_table("power_law_1.2", tokens, experts, chosen), rel=1e-3)
    # And the busiest of eight devices has as many choices, other draws than those of the popularity.
    rng = np.random.default_rng(9)
    draws = [drawn_loads(rng, tokens, experts, chosen, 1.2).reshape(8, -1).sum(axis=1).max() for _ in range(150)]
    busiest = float(busiest_load(experts, chosen, tokens, devices=8.0, routing=routing))
    assert busiest == pytest.approx(8 * np.mean(draws) / (tokens * chosen), rel=0.06)
    assert busiest > 1.25


def test_reads_a_table(tmp_path):
    count = 4
    columns = {
        "moe_dtype": ["bfloat16", "bfloat16", "fp8", "bfloat16"],
        "num_tokens": [3] * count,
        "hidden_size": [2048] * count,
        "inter_size": [1024] * count,
        "topk": [4] * count,
        "num_experts": [32] * count,
        "moe_tp_size": [1, 2, 1, 1],
        "moe_ep_size": [1, 1, 1, 2],
        "distribution": ["power_law_1.2", EVEN, EVEN, EVEN],
        "kernel_source": ["grouped", "grouped_nongated", "grouped", "grouped"],
        "latency": [0.5, 0.25, 0.1, 0.1],
    }
    write_tables(tmp_path, moe=columns)
    name = TableName("toy", "engine", "1.0", "moe")
    table = expert_table(name, root=tmp_path)
    assert expert_formats(name, root=tmp_path) == ("bfloat16",)
    np.testing.assert_array_equal(table.inner_size, [1024, 512])
    np.testing.assert_array_equal(table.gated, [1, 0])
    np.testing.assert_array_equal(table.touched, [touched_in_table("power_law_1.2", 3, 32, 4), 12])
    np.testing.assert_allclose(table.seconds, [5e-4, 2.5e-4])
    assert set(table.network) == {"2048x1024 32 choose 4"}
    dealt = expert_table(name, devices=2, root=tmp_path)
    assert dealt.touched.tolist() == [12]
    assert dealt.kernels == ("grouped",)
    with pytest.raises(KernelTableError, match="no bfloat16 experts on 4 GPUs"):
        expert_table(name, devices=4, root=tmp_path)
    with pytest.raises(KernelTableError, match="formats there: bfloat16"):
        expert_table(name, "int4_wo", root=tmp_path)
    with pytest.raises(KernelTableError, match="not modelled"):
        expert_table(name, "fp8", root=tmp_path)
