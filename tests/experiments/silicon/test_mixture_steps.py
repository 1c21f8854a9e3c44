"""Whole steps of large mixtures on 8 GPUs beside the cells that the calibration package composes."""

import numpy as np
import pytest

from experiments.silicon import mixture_steps
from hwmodels import catalog, touched_experts
from hwmodels.analysis.calibration.kernel_tables import touched_in_table

pytestmark = pytest.mark.device_matrix


@pytest.fixture(scope="module")
def cells():
    return mixture_steps.read_cells()


def test_as_many_experts_are_touched_as_in_the_tables(cells):
    for network in mixture_steps.NETWORKS:
        architecture = catalog.architecture(network)
        sizes = int(architecture.num_experts), int(architecture.experts_per_token)
        for cell in {(c.phase, c.batch, c.tokens): c for c in cells if c.network == network}.values():
            tokens = cell.batch * (cell.tokens if cell.phase == "prefill" else 1)
            found = float(touched_experts(*sizes, tokens, routing=mixture_steps.routing_of(cell, architecture)))
            even = float(touched_experts(*sizes, tokens))
            expected = min(touched_in_table(mixture_steps.DISTRIBUTION, tokens, *sizes), even)
            assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("engine", ["trtllm", "vllm"])
def test_experts_held_whole_keep_to_the_bar(cells, engine):
    chosen = [c for c in cells if (c.network, c.gpu, c.engine) == ("qwen3-235b-a22b", "h200-sxm", engine)]
    error = mixture_steps.priced(chosen) / np.array([cell.total_s for cell in chosen]) - 1
    for ways in mixture_steps.EXPERT_WAYS:
        for phase in ("decode", "prefill"):
            rows = [c.phase == phase and c.experts == ways for c in chosen]
            assert np.abs(error[rows]).mean() <= mixture_steps.BAR
            assert np.abs(error[rows]).max() <= 0.15
    section = mixture_steps.page_section([c for c in chosen if c.phase == "prefill"])
    mean = np.abs(error[[c.phase == "prefill" and c.experts == 8 for c in chosen]]).mean()
    assert f"| qwen3-235b-a22b | h200-sxm | {engine} | whole | prefill | 3 | {100 * mean:.1f} %" in section
