"""Intervals of calibrated devices, counted on whole steps that nothing was fitted to."""

import pytest

from experiments.silicon.coverage import covered_cells, summary
from experiments.silicon.steps import read_cells


def test_intervals_are_counted():
    cells = [cell for cell in read_cells() if (cell.gpu, cell.engine, cell.network) == ("l40s", "vllm", "qwen3-8b")]
    found = covered_cells(cells)
    assert len(found) == 18
    assert sum(cell["ratio"] is None for cell in found) == 3
    row = summary(found)["qwen3-8b"]
    assert (row["cells"], row["ratios"]) == (18, 15)
    assert 0.0 < row["steps_inside"] <= 1.0


@pytest.mark.slow
def test_stated_rates_of_held_out_cells():
    row = summary(covered_cells(read_cells()))["qwen3-8b"]
    assert 0.85 <= row["steps_inside"] <= 0.95
    assert 0.85 <= row["ratios_inside"] <= 0.95
