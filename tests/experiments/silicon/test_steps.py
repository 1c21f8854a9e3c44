"""Whole steps beside the cells that the calibration package composes."""

import numpy as np
import pytest

from experiments.silicon import steps
from experiments.silicon.steps_page import BARS, PRICED, page, peer_errors, read_peer, step_errors


@pytest.fixture(scope="module")
def cells():
    return steps.read_cells()


@pytest.mark.device_matrix
def test_steps_of_one_gpu_keep_to_the_bars(cells):
    chosen = [c for c in cells if c.gpu == "h200-sxm" and c.network == "llama-3.1-8b" and c.kv_bits == 16]
    found, seconds = step_errors(chosen, read_peer())
    assert len(found) == 6
    for one in found:
        mean, largest = BARS[one.phase]
        assert one.mean <= mean
        assert one.largest <= largest
        assert one.roofline > 3 * one.mean
        assert one.peer is not None
        assert one.peer_scaled is not None
        assert one.peer > max(one.peer_scaled, one.mean)
    # With a factor that has seen the answers, the peer is as near or nearer in prefill with these engines (by 0.1 points).
    nearer = {(one.engine, one.phase) for one in found if one.peer_scaled is not None and one.peer_scaled <= one.mean}
    assert nearer <= {("sglang", "prefill"), ("vllm", "prefill")}
    assert all(one.peer_scaled > one.mean - 2e-3 for one in found if one.peer_scaled is not None)
    assert f"| h200-sxm | vllm | 16 | 81 | {100 * found[2].mean:.1f} %" in page(found)
    # What is committed is what the model says.
    lines = PRICED.read_text(encoding="utf-8").splitlines()[1:]
    told = {tuple(line.split(",")[:7]): float(line.split(",")[8]) for line in lines}
    for cell, model in list(zip(chosen, seconds["model"]))[::40]:
        key = (cell.gpu, cell.engine, cell.network, cell.phase, str(cell.kv_bits), str(cell.batch), str(cell.tokens))
        assert told[key] == pytest.approx(model, rel=2e-3)
    assert np.all(seconds["model"] > 0)


def test_errors_of_the_peer_by_hand(cells):
    pair = [cell for cell in cells if cell.kv_bits == 16][:3]
    keys = [(c.gpu, c.network, c.phase, c.batch, c.tokens) for c in pair]
    peer = {key: cell.total_s / factor for key, cell, factor in zip(keys, pair, (2.0, 4.0, 5.0))}
    plain, scaled = peer_errors(pair, peer)
    assert plain == pytest.approx((0.5 + 0.75 + 0.8) / 3)
    assert scaled == pytest.approx((1.0 + 0.0 + 0.2) / 3)  # the median of 2, 4 and 5
    assert peer_errors(pair, {key: peer[key] for key in keys[:2]}) == (None, None)
    narrow = [next(cell for cell in cells if cell.kv_bits == 8)]
    assert peer_errors(narrow, read_peer()) == (None, None)
