"""Whole steps with quantized weights beside the cells that the calibration package composes."""

import numpy as np
import pytest

from experiments.silicon import format_steps

pytestmark = pytest.mark.device_matrix


def test_fp8_steps_keep_to_the_bars():
    chosen = [
        cell
        for cell in format_steps.read_cells()
        if (cell.gpu, cell.engine, cell.weights) == ("b200-sxm", "sglang", "fp8")
    ]
    error = format_steps.priced(chosen) / np.array([cell.total_s for cell in chosen]) - 1
    for phase in ("decode", "prefill"):
        sizes = np.abs(error[[cell.phase == phase for cell in chosen]])
        assert sizes.mean() <= format_steps.BAR
        assert sizes.max() <= format_steps.LARGEST
    decoding = [cell for cell in chosen if cell.phase == "decode"]
    section = format_steps.page_section(decoding)
    mean = np.abs(error[[cell.phase == "decode" for cell in chosen]]).mean()
    assert f"| b200-sxm | sglang | fp8 | decode | 27 | {100 * mean:.1f} %" in section
    assert section.count("\n| b200-sxm") == 1
