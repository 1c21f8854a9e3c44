"""Whole steps beside the cells that the calibration package composes."""

import dataclasses

import numpy as np
import pytest

from experiments.silicon import steps
from experiments.silicon.peer_steps import PEER_CELLS, ask, genz_step, peer_errors, read_peer, write_peer
from experiments.silicon.steps_page import BARS, PAGE, PRICED, page, step_errors
from hwmodels import catalog


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


def test_the_committed_seconds_of_the_peer_are_of_all_cells_and_on_the_page(cells):
    peer = read_peer()
    wide = [cell for cell in cells if cell.kv_bits == 16]
    assert set(peer) == {(c.gpu, c.network, c.phase, c.batch, c.tokens) for c in wide}
    assert write_peer(peer) == PEER_CELLS.read_text(encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    for gpu, engine, phase in (("a100-sxm", "vllm", "decode"), ("l40s", "sglang", "prefill")):
        row = [c for c in wide if (c.gpu, c.engine, c.phase) == (gpu, engine, phase)]
        plain, scaled = peer_errors(row, peer)
        assert plain is not None
        assert scaled is not None
        assert any(
            line.startswith(f"| {gpu} | {engine} | 16 |")
            and line.endswith(f"| {100 * plain:.1f} % | {100 * scaled:.1f} % |")
            for line in text.splitlines()
        )


@pytest.mark.filterwarnings("ignore")
def test_the_peer_says_what_is_committed(cells):
    pytest.importorskip("GenZ")
    few = [cell for cell in cells if cell.kv_bits == 16][:: len(cells) // 3]
    for key, seconds in ask(few).items():
        assert seconds == pytest.approx(read_peer()[key], rel=1e-4)
    # And a step that reads its weights once: twice the bandwidth is half the time, nearly.
    device, shapes = catalog.device("h100-sxm"), catalog.architecture("llama-3.1-8b")
    memory = dataclasses.replace(device.memory, bandwidth_bytes_per_s=2.0 * device.memory.bandwidth_bytes_per_s)
    faster = dataclasses.replace(device, memory=memory)
    slow, fast = (genz_step(one, shapes, phase="decode", batch=1, tokens=512)() for one in (device, faster))
    assert slow == pytest.approx(2.0 * fast, rel=0.05)
