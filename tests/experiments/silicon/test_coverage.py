"""Intervals of calibrated devices, counted on whole steps that nothing was fitted to."""

import pytest
from code_blocks import ROOT

from experiments.silicon.coverage import covered_cells, summary
from experiments.silicon.steps import read_cells

pytestmark = pytest.mark.device_matrix


def test_intervals_are_counted():
    cells = [cell for cell in read_cells() if (cell.gpu, cell.engine, cell.network) == ("l40s", "vllm", "qwen3-8b")]
    found = covered_cells(cells)
    assert len(found) == 18
    assert sum(cell["ratio"] is None for cell in found) == 3
    row = summary(found)["qwen3-8b"]
    assert (row["cells"], row["ratios"]) == (18, 15)
    assert 0.0 < row["steps_inside"] <= 1.0


def test_stated_rates_of_held_out_cells():
    rows = summary(covered_cells(read_cells()))
    row, chosen = rows["qwen3-8b"], rows["llama-3.1-8b"]
    page = " ".join((ROOT / "docs" / "pages" / "advise.md").read_text(encoding="utf-8").split())
    percent = lambda share: f"{100 * share:.0f} %"
    assert f"engines, qwen3-8b | {row['cells']} | {percent(row['steps_inside'])} |" in page
    assert f"one sequence's | {row['ratios']} | {percent(row['ratios_inside'])} |" in page
    both = f"{percent(chosen['steps_inside'])} and {percent(chosen['ratios_inside'])}"
    assert f"was chosen on llama-3.1-8b, of which {both} lie inside" in page
    assert 0.85 <= row["steps_inside"] <= 0.95
    assert 0.85 <= row["ratios_inside"] <= 0.95
