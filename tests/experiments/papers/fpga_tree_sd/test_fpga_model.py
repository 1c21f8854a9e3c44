"""The model behind the tables: times by hand, passes of the draft, the law, and what it shares with the library."""

import numpy as np
import pytest

from experiments.papers.fpga_tree_sd import calibration, model
from experiments.papers.fpga_tree_sd.model import LENGTHS, Fitted, Times, cycle
from hwmodels import catalog

#: Two operators at contexts 512 and 2048: the first bound by memory, the second by arithmetic, at lengths 3 and 9.
TOY = Times(
    contexts=np.array([512.0, 2048.0]),
    lengths=np.array([3.0, 9.0]),
    memory_s=np.array([[[5.0, 1.0], [5.0, 1.0]], [[5.0, 7.0], [5.0, 7.0]]]),
    compute_s=np.array([[[1.5, 3.0], [4.5, 9.0]], [[1.5, 3.0], [4.5, 9.0]]]),
    step_memory_s=np.array([[5.0, 1.0], [5.0, 7.0]]),
    step_compute_s=np.array([[0.5, 1.0], [0.5, 1.0]]),
    frequency_hz=200e6,
    layer_share=0.03,
    head_share=0.07,
    layers=32.0,
)
SOME = Fitted(intercept=1.1, log_slope=0.7, slope_per_doubling=-0.05, shift=0.4, frequency_hz=250e6)


def test_a_cycle_by_hand():
    run = cycle(TOY, SOME)
    # Arithmetic takes 0.8 of the catalog's. Sums: 6 or 12 s against 3.6 and 10.8 s.
    np.testing.assert_allclose(run.verify_s, [[6.0, 10.8], [12.0, 12.0]])
    np.testing.assert_allclose(run.autoregressive_s, [6.0, 12.0])
    # A tenth of a step per pass; 5 ln 3 / ln 69 and 5 ln 9 / ln 69 passes.
    passes = np.array([1.2973, 2.5947])
    np.testing.assert_allclose(run.draft_s, 0.1 * np.array([[6.0], [12.0]]) * passes, rtol=1e-4)
    # One doubling below and one above 1024.
    np.testing.assert_allclose(run.accepted[0], 1.1 + 0.75 * np.log([2.6, 8.6]))
    np.testing.assert_allclose(run.accepted[1], 1.1 + 0.65 * np.log([2.6, 8.6]))
    np.testing.assert_allclose(run.performance, run.accepted / (run.verify_s + run.draft_s))


def test_draft_of_one_layer_and_the_head():
    layer, head = model.draft_share("llama-3.1-8b")
    # 4096 x (2 x 4096 + 2 x 1024 + 3 x 14336) and 4096 x 128256 over 32 such layers and the head.
    one, top = 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336), 4096 * 128256
    assert (layer, head) == (pytest.approx(one / (32 * one + top)), pytest.approx(top / (32 * one + top)))
    # The paper's alpha < 1/2 holds up to LongSpec's own tree, barely.
    assert 0.49 < 5 * (layer + head) < 0.5


def test_the_fit_finds_what_it_was_made_with(monkeypatch):
    planted = Fitted(1.3, 0.62, -0.03, 0.2, 244e6)
    truth, times = model.table_one(), calibration.table_one_times()
    performance = cycle(times, planted).performance
    best = LENGTHS[performance.argmax(axis=1)]
    lengths = np.column_stack([truth.lengths[:, :2], best])
    made = truth._replace(lengths=lengths, performance=model.at_lengths(performance, lengths))
    monkeypatch.setattr(calibration, "table_one", lambda: made)
    found = calibration.fit.__wrapped__()
    assert found.half_squares < 1e-9
    np.testing.assert_allclose(found.fitted[:5], planted[:5], rtol=0.02)
    assert found.fitted.frequency_hz == pytest.approx(244e6, rel=1e-3)


def test_boards_are_those_of_table_four():
    specs = {(cell["board"], cell.metric): cell.value for cell in model.cells("table4_board_specs")}
    for board, name in model.BOARDS.items():
        device = catalog.device(name)
        array = [device.matrix_unit.rows, device.matrix_unit.columns]
        assert array == [float(specs[board, f"pe_array_{side}"]) for side in ("rows", "cols")]
        assert device.memory.bandwidth_bytes_per_s == 1e9 * float(specs[board, "memory_bandwidth"])
    # One memory efficiency and one traffic factor, from Table I's rows, on all of them.
    boards = [catalog.device(name) for name in model.BOARDS.values()]
    assert len({(device.memory.efficiency, device.kv_traffic_factor) for device in boards}) == 1
