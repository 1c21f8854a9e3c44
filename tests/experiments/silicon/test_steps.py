"""Whole steps beside the cells that the calibration package composes."""

import numpy as np
import pytest

from experiments.silicon import steps
from experiments.silicon.steps_page import BARS, PRICED, page, step_errors


@pytest.fixture(scope="module")
def cells():
    return steps.read_cells()


def test_there_are_enough_cells_of_each_device_engine_and_phase(cells):
    count = {}
    for cell in cells:
        key = (cell.gpu, cell.engine, cell.phase)
        count[key] = count.get(key, 0) + 1
    assert len(count) == 2 * 3 * len(steps.CATALOG)
    assert min(count.values()) >= 80


def test_cells_are_written_as_they_are_read(cells, tmp_path):
    path = tmp_path / "cells.csv"
    path.write_text(steps.write_cells(cells[:50]), encoding="utf-8")
    assert steps.read_cells(path) == cells[:50]


def test_steps_of_one_gpu_keep_to_the_bars(cells):
    chosen = [c for c in cells if c.gpu == "h200-sxm" and c.network == "llama-3.1-8b" and c.kv_bits == 16]
    found, seconds = step_errors(chosen)
    assert len(found) == 6
    for one in found:
        mean, largest = BARS[one.phase]
        assert one.mean <= mean
        assert one.largest <= largest
        assert one.roofline > 3 * one.mean
    assert f"| h200-sxm | vllm | 16 | 81 | {100 * found[2].mean:.1f} %" in page(found)
    # What is committed is what the model says.
    lines = PRICED.read_text(encoding="utf-8").splitlines()[1:]
    told = {tuple(line.split(",")[:7]): float(line.split(",")[8]) for line in lines}
    for cell, model in list(zip(chosen, seconds["model"]))[::40]:
        key = (cell.gpu, cell.engine, cell.network, cell.phase, str(cell.kv_bits), str(cell.batch), str(cell.tokens))
        assert told[key] == pytest.approx(model, rel=2e-3)
    assert np.all(seconds["model"] > 0)
