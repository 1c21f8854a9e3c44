"""Products of few rows on `m3-ultra`: forwards of several sequences and tokens on another M3 Ultra, and products alone.

Qwen3.6-27B (the shapes of `qwen3.5-27b`) in 4 bits and groups of 64 under MLX 0.32.2 on an M3 Ultra with 60 GPU cores:
github.com/Augustas11/macprovider, branches lab/mtp-mlx-0323 and lab/qmv-smallm, October 2026.
"""

import dataclasses
import itertools

import numpy as np
import pytest

from hwmodels import catalog, step_cost, step_operators
from hwmodels.network.architecture import uniform_weight_bits
from hwmodels.network.operators import StepShape

DEVICE = catalog.device("m3-ultra")
SIXTY = dataclasses.replace(DEVICE, peak_flops_per_s=DEVICE.peak_flops_per_s * 60 / 80)
NETWORK = catalog.architecture("qwen3.5-27b")

#: Sequences -> milliseconds of a forward of one, two and three tokens of each.
FORWARDS = {
    1: (28.83, 33.07, 39.99),
    2: (33.04, 47.51, 65.73),
    4: (48.15, 81.07, 142.16),
    8: (82.12, 141.25, 147.39),
    16: (143.84, 149.95, 273.16),
}


def ratio(device, sequences, tokens):
    """A forward's time over the measured one."""
    work = step_operators(
        NETWORK,
        StepShape(
            tokens=float(tokens),
            batch=float(sequences),
            context_tokens=64.0,
            weight_bits=uniform_weight_bits(4.0 + 32 / 64),
            kv_bits=16.0,
        ),
    )
    return 1e3 * float(step_cost(device, work).total_s) / FORWARDS[sequences][tokens - 1]


@pytest.fixture(scope="module")
def ratios():
    """Rows -> ratios of all forwards of as many."""
    found = {}
    for sequences, tokens in itertools.product(FORWARDS, (1, 2, 3)):
        found.setdefault(sequences * tokens, []).append(ratio(SIXTY, sequences, tokens))
    return found


@pytest.mark.parametrize("rows", [(4, 6, 8), (12, 16, 24, 32)], ids=["vectors", "tiles"])
def test_two_numbers_give_the_forwards_that_they_are_solved_from(ratios, rows):
    solved = np.concatenate([ratios[m] for m in rows])
    assert solved.size == 5
    assert np.exp(np.mean(np.log(solved))) == pytest.approx(1.0, abs=2e-3)
    assert np.all(np.abs(solved - 1.0) < 0.065)


def test_fewer_and_more_rows_than_those(ratios):
    # Bound by memory, with more kernels in a layer than the model counts; two tiles.
    others = np.concatenate([ratios[m] for m in (1, 2, 3, 48)])
    assert others.size == 5
    assert np.all((others > 0.84) & (others < 0.92))
