"""The mobile NPU paper's numbers: what is fitted, what is predicted and how well, and where the catalog has them."""

import dataclasses

import pytest

from experiments.papers.mobile_npu import tables
from experiments.papers.mobile_npu.decoding import fit, fitted_numbers, slowdown, softmax_speedups
from experiments.papers.mobile_npu.paper import PAPER
from experiments.papers.mobile_npu.versions import CONTEXT, network_of
from experiments.reproduce.run import run_paper
from hwmodels import catalog, parameters

pytestmark = pytest.mark.paper


@pytest.fixture(scope="module")
def outcome():
    """All but the accuracies, which are measured on networks."""
    return run_paper(dataclasses.replace(PAPER, details=tuple(one for one in PAPER.details if one.name != "accuracy")))


def test_four_numbers_are_fitted_and_the_catalog_has_them():
    fitted, device = fit(), catalog.device("hexagon-v75")
    assert len(fitted_numbers()) == len(fitted) == 4
    vector = device.matrix_unit.vector
    # To the digits that the file gives.
    assert vector.layout.register_packets == pytest.approx(fitted.register_packets, abs=6e-4)
    assert vector.row_packets == pytest.approx(fitted.row_packets, abs=0.06)
    assert device.chip.static_power_w == pytest.approx(fitted.static_power_w, abs=6e-4)


def test_the_fits_meet_what_they_are_fitted_to():
    assert slowdown(fit()) == pytest.approx(1.27, rel=1e-4)
    speedups = softmax_speedups(fit())
    assert (speedups.min(), speedups.max()) == pytest.approx((1.26, 2.19), rel=1e-3)


#: Predicted cells with a bar, and the bar.
ENDS, MEMORY = 0.15, 0.03


def test_statuses_and_bars(outcome):
    status = {}
    for row in outcome.rows:
        if row["table"] in ("fig14", "fig15"):
            key = (row["table"], row["conditions"]["over"], row["conditions"]["end"])
            status[key] = row["status"]
            assert row["relative_error"] < ENDS, key
        if row["metric"] == "dmabuf_memory":
            assert row["status"] == "predicted"
            assert row["relative_error"] < MEMORY
    calibrated = {key for key, one in status.items() if one == "calibrated"}
    # The lower ends are those of 8-bit weights, whose conversion was chosen with them in view.
    lower = {key for key in status if key[0] == "fig15" and key[2] == "lowest"}
    assert len(lower) == 2
    assert calibrated - lower == {
        ("fig15", "no dequantization", "average"),
        ("fig14", "32-bit floating-point exp", "lowest"),
        ("fig14", "32-bit floating-point exp", "highest"),
    }
    assert {one for key, one in status.items() if key not in calibrated} == {"predicted"}
    assert outcome.summary["memory_power"]["reproduced"]
    assert outcome.summary["fig14"]["reproduced"]


def test_memory_by_hand():
    # Qwen2.5-1.5B: layers of 1536 x (2 * 1536 + 2 * 256 + 2 * 8960) weights at 4.5 bits, 8960 x 1536 at 8.5, vectors at 32.
    network = network_of("Qwen2.5-1.5B")
    narrow, wide = 28 * 1536 * (2 * 1536 + 2 * 256 + 2 * 8960), 28 * 1536 * 8960
    weights = narrow * 4.5 / 8 + wide * 8.5 / 8 + float(parameters(network)["norm"]) * 4
    cache, activations = 28 * 2 * 256 * 4096 * 2, 512 * 2 * (8960 + 1536) * 4
    assert tables.weights_mib("Qwen2.5-1.5B") == pytest.approx(weights / 2**20, rel=1e-6)
    total = (weights + cache + activations) / 2**20
    assert tables.session_mib("Qwen2.5-1.5B", CONTEXT) == pytest.approx(total, rel=1e-6)
    process = total + 151936 * 1536 * 210 / 256 / 2**20
    assert tables.process_mib("Qwen2.5-1.5B", CONTEXT) == pytest.approx(process, rel=1e-6)


#: Figures that networks are run for: some minutes. How they are drawn is looked at in `test_npu_scaling`.
