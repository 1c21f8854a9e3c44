"""Experts dealt to several GPUs: on one GPU they are all, even loads are shares, uneven ones those of the busiest."""

import numpy as np
import pytest

from experiments.silicon.refit_experts import dealt_experts
from hwmodels.analysis.calibration.experts import ExpertTable
from hwmodels.analysis.calibration.kernel_tables import EVEN, DataSheet, touched_in_table
from hwmodels.catalog.calibrated import calibrated_experts
from hwmodels.compute.gpu_experts import expert_layer_time

pytestmark = pytest.mark.device_matrix

SHEET = DataSheet(989e12, 4.8e12, 132.0)
SIZES = {"hidden_size": 2048.0, "inner_size": 768.0}


def rows(*conditions):
    """A table of 16-bit launches of 8 of 128 experts, "distribution, tokens"."""
    count, names = len(conditions), [name for name, _ in conditions]
    full = lambda value: np.full(count, value)
    return ExpertTable(
        tokens=np.array([float(tokens) for _, tokens in conditions]),
        experts_per_token=full(8.0),
        num_experts=full(128.0),
        gated=full(1.0),
        touched=np.array([touched_in_table(name, tokens, 128, 8) for name, tokens in conditions]),
        distribution=np.array(names),
        network=np.array(["toy"] * count),
        seconds=full(4e-4),
        weight_bits=16.0,
        **{name: full(value) for name, value in SIZES.items()},
    )


@pytest.mark.parametrize("engine", ["trtllm", "vllm"])
def test_one_gpu_has_all(engine):
    unit, table = calibrated_experts("h200-sxm", engine)[16.0], rows((EVEN, 50), ("power_law_1.2", 700))
    found = dealt_experts(table, unit, SHEET, devices=1)
    alone = expert_layer_time(unit, **table.conditions())
    np.testing.assert_allclose(found.predicted_s, alone, rtol=1e-4)
    assert found.modelled.tolist() == [False, True]


def test_shares_of_eight_gpus_by_hand():
    unit = calibrated_experts("h200-sxm", "trtllm")[16.0]
    table = rows((EVEN, 4096), ("power_law_1.2", 4096), ("power_law_1.2", 1))
    even, uneven, one = dealt_experts(table, unit, SHEET, devices=8).predicted_s
    own = {"experts_per_token": 8.0, "touched": 16.0, **SIZES}
    assert even == pytest.approx(float(expert_layer_time(unit, tokens=4096.0, own_share=1 / 8, **own)), rel=1e-4)
    # Twice the mean falls on the busiest of a power law, and nearly all of its experts are touched.
    twice = float(expert_layer_time(unit, tokens=4096.0, own_share=2 / 8, **own))
    assert uneven == pytest.approx(twice, rel=0.05)
    # The busiest of eight has two or three of the eight choices of one token.
    times = [
        float(expert_layer_time(unit, tokens=1.0, own_share=n / 8, **(own | {"touched": float(n)}))) for n in (2, 3)
    ]
    assert times[0] < one < times[1]
