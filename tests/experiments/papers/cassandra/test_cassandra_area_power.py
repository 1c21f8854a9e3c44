import dataclasses
import math

import numpy as np
import pytest

from experiments.papers.cassandra import area_power
from experiments.papers.cassandra.paper import PAPER
from experiments.papers.huffllm import compression
from experiments.papers.huffllm.compression import ScaleModel
from experiments.reproduce.run import run_paper

pytestmark = pytest.mark.paper


@pytest.fixture(scope="module")
def result():
    # Weights for Fig. 6 alone, which `test_unary_length` of Huff-LLM's tests looks at: here any will do.
    patterns = np.zeros((1, 1 << 16), int)
    patterns[0, [0x3F80, 0x3F00, 0x3E80]] = 2, 1, 1
    sample = compression.Sample(ScaleModel(0.01, 0.2), {("Llama", "bfloat16"): patterns})
    return run_paper(dataclasses.replace(PAPER, solve=lambda seed: sample))


def cells(result, table, metric=None):
    return [row for row in result.of(table) if metric in (None, row["metric"])]


def test_every_cell_of_the_table(result):
    rows = cells(result, "table5_area_power")
    assert len(rows) == 18
    for metric in ("area", "area_ratio", "power"):
        assert len(cells(result, "table5_area_power", metric)) == 6
    for row in result.rows:
        error = abs(row["model_value"] - row["paper_value"]) / row["paper_value"]
        assert math.isclose(row["relative_error"], error)
    missed = area_power.missed_bars(result)
    assert [line.split(":")[0] for line in missed] == ["unary_bits"]  # made up, see above


def test_one_corrected_area_explains_all_ratios(result):
    ratios = {row["conditions"]["module"]: row for row in cells(result, "table5_area_power", "area_ratio")}
    assert len(ratios) == 6
    for row in ratios.values():
        assert round(row["model_value"], 1) == row["paper_value"], row
    assert math.isclose(sum(row["model_value"] for row in ratios.values()), 100)
    summary = result.summary["table5_area_power"]
    # s / (s + 69.28) = 0.248
    assert math.isclose(summary["fitted"]["SRAM area, mm^2"], 69.28 * 0.248 / 0.752)
    assert [entry["rounds_to_printed"] for entry in result.details["ratios"]] == [True] * 6
    # Nearer than the printed areas over their sum, which is still no prediction.
    for peer in summary["simplest_predictors"].values():
        assert peer["beaten"]
    others = [row["relative_error"] for module, row in ratios.items() if module != "SRAM"]
    by_sum = {entry["module"]: entry["of_printed_sum_percent"] for entry in result.details["ratios"]}
    printed_sum = [abs(by_sum[module] / row["paper_value"] - 1) for module, row in ratios.items() if module != "SRAM"]
    assert np.median(others) < np.median(printed_sum) / 2
