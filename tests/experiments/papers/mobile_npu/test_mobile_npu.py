"""The mobile NPU paper's numbers: what is fitted, what is predicted and how well, and where the catalog has them."""

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from experiments.papers.mobile_npu import details, memory, tables
from experiments.papers.mobile_npu.calibration import fit, fitted_numbers, slowdown, softmax_speedups
from experiments.papers.mobile_npu.kernels import gemv_seconds, matrices
from experiments.papers.mobile_npu.paper import PAPER
from experiments.papers.mobile_npu.printed import CONTEXT
from experiments.papers.mobile_npu.versions import INSTRUCTIONS, calibrated_device, network_of
from experiments.reproduce.run import run_paper
from hwmodels import catalog, parameters

pytestmark = pytest.mark.paper

GIB = 2.0**30


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


def test_statements_and_what_is_missed(outcome):
    failing = {one["says"] for one in outcome.details["statements"] if not one["holds"]}
    assert failing == {
        "the logits take at least 45 % at 16 samples on V73 and V79",
        "the NPU decodes faster at larger batches",
    }
    missed = PAPER.missed_bars(outcome)
    assert len(missed) == 2
    assert all(line.startswith("does not hold: ") for line in missed)
    # What had to be chosen in sight of a statement is no prediction.
    used = {one["where"] for one in outcome.details["statements"] if one["status"] == "calibrated"}
    assert used == {"Fig. 12", "Fig. 13", "7.2.2"}


def test_the_catalog_s_chosen_rates_are_inherited(outcome):
    """45 GFLOP/s of the CPU and 60 us of a launch: the text's other cells were in view."""
    claims = outcome.summary["claims"]
    names = ["rate of the CPU, GFLOP/s", "launch of an operator, us"]
    assert [(choice["name"], choice["used"], choice["cells"]) for choice in claims["choices_by_outcome"]] == [
        (names[0], "45", 1),
        (names[1], "60", 0),
    ]
    assert [choice["name"] for choice in outcome.summary["memory_power"]["choices_by_outcome"]] == names
    (share,) = [row for row in outcome.of("claims") if row["conditions"]["claim_id"] == "NPU026"]
    assert (share["status"], share["by_outcome"]) == ("calibrated", names[:1])
    assert sum(map(len, claims["inherits"].values())) == 4


def test_logits_take_their_share_and_more_samples_pay(outcome):
    assert np.all(tables.head_share(outcome.solved) >= 45.0)
    for decoding in outcome.solved.values():
        assert np.all(np.diff(decoding.tokens_per_s(), axis=-1) > 0)
        declines = 1 - decoding.tokens_per_s()[-1] / decoding.tokens_per_s()[0]
        assert np.all((declines > 0) & (declines < 0.2))


def test_the_page_of_hardware_models_has_these_rates_and_shares(outcome):
    page = (Path(__file__).parents[4] / "docs" / "pages" / "hardware.md").read_text(encoding="utf-8")
    decoding = [outcome.solved[generation, "Qwen2.5-1.5B"] for generation in ("V73", "V75", "V79")]
    rates = [one.tokens_per_s()[0] for one in decoding]
    assert f"of one sample, of 16 | {' | '.join(f'{rate[0]:.0f}, {rate[-1]:.0f}' for rate in rates)} |" in page
    shares = " | ".join(f"{100 * one.head_share[0, -1]:.0f} %" for one in decoding)
    assert f"| logits in a step of 16 samples | {shares} |" in page


def test_versions_of_the_layouts_are_ordered():
    seconds = gemv_seconds(calibrated_device(fit()))
    order = ("no dequantization", "ours", "HMX layout", "baseline")
    for faster, slower in itertools.pairwise(order):
        assert np.all(seconds[faster] < seconds[slower])
    # Five matrices of each network, of which one has eight bits.
    bits = np.array([one["weight_bits"] for one in matrices()])
    assert (len(bits), np.sum(bits == 8.5), np.sum(bits == 4.5)) == (20, 4, 16)


def test_instructions_are_counted():
    assert {name: sum(steps.values()) for name, steps in INSTRUCTIONS.items()} == {
        "full register": 20,
        "group alone": 9,
    }


def test_memory_by_hand():
    # Qwen2.5-1.5B: layers of 1536 x (2 * 1536 + 2 * 256 + 2 * 8960) weights at 4.5 bits, 8960 x 1536 at 8.5, vectors at 32.
    network = network_of("Qwen2.5-1.5B")
    narrow, wide = 28 * 1536 * (2 * 1536 + 2 * 256 + 2 * 8960), 28 * 1536 * 8960
    weights = narrow * 4.5 / 8 + wide * 8.5 / 8 + float(parameters(network)["norm"]) * 4
    cache, activations = 28 * 2 * 256 * 4096 * 2, 512 * 2 * (8960 + 1536) * 4
    assert memory.weights_mib("Qwen2.5-1.5B") == pytest.approx(weights / 2**20, rel=1e-6)
    total = (weights + cache + activations) / 2**20
    assert memory.session_mib("Qwen2.5-1.5B", CONTEXT) == pytest.approx(total, rel=1e-6)
    process = total + 151936 * 1536 * 210 / 256 / 2**20
    assert memory.process_mib("Qwen2.5-1.5B", CONTEXT) == pytest.approx(process, rel=1e-6)


def test_what_an_older_session_cannot_address():
    v73, v75 = catalog.device("hexagon-v73"), catalog.device("hexagon-v75")
    assert v73.memory.capacity_bytes == 2 * GIB
    assert [memory.fits(f"Qwen2.5-{size}B", v73, CONTEXT) for size in ("1.5", "3", "7")] == [True, False, False]
    assert [memory.fits(f"Qwen2.5-{size}B", v75, CONTEXT) for size in ("1.5", "3", "7")] == [True, True, False]
    assert tables.smallest_too_large(lambda model: "7B" not in model) == 7.0
    assert tables.smallest_too_large(lambda model: "Llama" in model) == 1.5


def test_other_readings_are_told(outcome):
    readings = {one["reading"]: one for one in outcome.details["variants"]}
    slow, fast = (readings[f"a scatter of {packets} packets"] for packets in (48, 24))
    assert slow["baseline max"] > readings["the model"]["baseline max"] > fast["baseline max"]
    # Eight-bit weights at the time of four-bit ones: bound by the copy, and the ranges' lower ends are missed.
    flat = readings["8-bit weights cost what 4-bit ones do"]
    assert flat["HMX layout min"] > 1.15 * 1.82
    assert flat["baseline min"] > 1.15 * 9.65


def test_generations_are_table_3(outcome):
    rows = outcome.details["generations"]
    assert len(rows) == 12
    assert {(row["npu_arch"], row["soc"]) for row in rows} == {
        ("V73", "Snapdragon 8 Gen 2"),
        ("V75", "Snapdragon 8 Gen 3"),
        ("V79", "Snapdragon 8 Elite"),
    }
    one = {(row["npu_arch"], row["model"]): row["one_tokens_per_s"] for row in rows}
    for model in ("Qwen2.5-1.5B", "Llama3.2-3B"):
        assert one["V73", model] < one["V75", model] < one["V79", model]
    json.dumps(outcome.details)


#: Figures that networks are run for: some minutes. How they are drawn is looked at in `test_npu_scaling`.


@pytest.mark.parametrize("name", PAPER.figures)
def test_figures(name, outcome):
    figure = PAPER.figures[name](outcome)
    assert figure.axes
    assert all(axes.has_data() for axes in figure.axes)


def test_details_are_printed(outcome):
    for detail in details.DETAILS:
        # Those of the details that the outcome has.
        for entry in detail.entries(outcome.details[detail.name]) if detail.name in outcome.details else ():
            for form in detail.columns.values():
                assert form.format(**entry)
