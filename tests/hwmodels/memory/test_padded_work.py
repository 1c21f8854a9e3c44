"""Padding of superblocks in a step's traffic, on a device that stores compressed tensors so."""

from typing import Any

import numpy as np
import pytest

from hwmodels import (
    LAYER_MATRICES,
    OPERATORS,
    OnChipPath,
    decode_operators,
    step_cost,
    step_operators,
    uniform_footprint,
    uniform_weight_bits,
)
from hwmodels.device import Superblocks
from hwmodels.memory import CACHE_BLOCK_BYTES, superblock_traffic
from hwmodels.network.operators import StepShape
from hwmodels.step.step_cost import STREAMS, padded_work

BLOCKS = Superblocks(blocks_per_superblock=11.0, block_bytes=96.0)
#: Of a tensor with three streams: half a block for each, and half of ten at the end.
PADDING = 96 * (1.5 + 5)


@pytest.fixture
def small(small):
    """Tensors so large that padding takes less than compression saves."""
    return small.replace(hidden_size=4000.0, head_dim=64.0)


def added(device, work):
    packed = padded_work(device, work)
    found = {
        name: np.asarray(getattr(packed, name) - getattr(work, name), float)
        for name in ("weight_bytes", "kv_bytes", "activation_bytes")
    }
    return {kind: dict(zip(OPERATORS, values.tolist(), strict=True)) for kind, values in found.items()}


def test_by_hand(toy_device, small, workload, footprint):
    """Three layers, each with matrices q, k, v, o, gate, up, down and its norms; keys and values of three sequences."""
    found = added(toy_device.replace(superblocks=BLOCKS), decode_operators(small, workload, footprint=footprint))
    tensors = {"qkv": 9, "o": 3, "gate_up": 6, "down": 3, "lm_head": 1, "norm": 7}
    expected = {name: PADDING * tensors.get(name, 0) for name in OPERATORS}
    assert found["weight_bytes"] == pytest.approx(expected, rel=1e-3, abs=1e-3)
    assert found["kv_bytes"]["attention"] == pytest.approx(PADDING * 2 * 3 * 3, rel=1e-4)
    assert sum(found["kv_bytes"].values()) == found["kv_bytes"]["attention"]
    assert not any(found["activation_bytes"].values())
    assert Superblocks(16.0).block_bytes == CACHE_BLOCK_BYTES


def test_no_tensor_grows_beyond_its_16_bits(toy_device, small):
    step = {"tokens": 1.0, "batch": 1.0, "context_tokens": 90.0, "kv_bits": 15.99}
    work = step_operators(small, StepShape(**step, weight_bits=uniform_weight_bits(15.9999, LAYER_MATRICES)))
    wide = step_operators(small, StepShape(**step | {"kv_bits": 16.0}, weight_bits=uniform_weight_bits(16.0)))
    packed = padded_work(toy_device.replace(superblocks=BLOCKS), work)
    for name in ("weight_bytes", "kv_bytes"):
        np.testing.assert_allclose(getattr(packed, name), getattr(wide, name), rtol=1e-5)


def test_it_is_that_of_streams_in_superblocks(toy_device, small):
    work = step_operators(
        small,
        StepShape(
            tokens=1.0, batch=1.0, context_tokens=90.0, weight_bits=uniform_weight_bits(5.0, ["o"]), kv_bits=16.0
        ),
    )
    found = added(toy_device.replace(superblocks=BLOCKS), work)["weight_bytes"]
    assert sum(found.values()) == found["o"]
    coded = np.asarray(work.coded_bits, float)[OPERATORS.index("o")] / 8
    streams = np.full(len(STREAMS), coded / len(STREAMS), np.float32)
    traffic = superblock_traffic(streams, blocks_per_superblock=11.0, block_bytes=96.0, num_tensors=3.0)  # pyright: ignore
    assert found["o"] == pytest.approx(float(traffic.moved_bytes - traffic.payload_bytes), rel=1e-4)


def test_only_what_is_coded_and_read_is_padded(toy_device, small, workload):
    device = toy_device.replace(superblocks=BLOCKS)
    plain = decode_operators(small, workload, footprint=uniform_footprint(16))
    assert all(not any(kind.values()) for kind in added(device, plain).values())
    step: dict[str, Any] = {"tokens": 1.0, "batch": 1.0, "context_tokens": 90.0, "kv_bits": 16.0}
    coded = {"weight_bits": uniform_weight_bits(5.0, LAYER_MATRICES)}
    whole = added(device, step_operators(small, StepShape(**step, **coded)))["weight_bytes"]
    half = added(device, step_operators(small, StepShape(feed_forward_share=0.5, **step, **coded)))["weight_bytes"]
    assert half["down"] == pytest.approx(whole["down"] / 2, rel=1e-3)
    assert half["o"] == whole["o"] > 0
    # Nothing is cached before the prompt.
    first = step_operators(small, StepShape(**step | {"context_tokens": 0.0, "kv_bits": 6.0}, **coded))
    assert not any(added(device, first)["kv_bytes"].values())
    # Two experts of a token are two tensors of a kind, in each of two layers.
    mixture = small.replace(
        num_moe_layers=2.0, num_experts=5.0, experts_per_token=2.0, expert_intermediate_size=6.0, gated_ffn=1.0
    )
    routed = step_operators(mixture, StepShape(**step, weight_bits=uniform_weight_bits(5.0, ["expert_down"])))
    assert added(device, routed)["weight_bytes"]["expert_down"] == pytest.approx(PADDING * 4, rel=1e-3)


def test_a_step_moves_it_once_and_only_where_the_device_asks(toy_device, small, workload, footprint):
    work = decode_operators(small, workload, footprint=footprint)
    device = toy_device.replace(on_chip_path=OnChipPath(1e9))
    usual, padded = step_cost(device, work), step_cost(device.replace(superblocks=BLOCKS), work)
    more = float(padded.traffic_bytes.sum() - usual.traffic_bytes.sum())
    assert more == pytest.approx(PADDING * (29 + 18), rel=1e-3)
    np.testing.assert_allclose(
        padded.memory_s - usual.memory_s, (padded.traffic_bytes - usual.traffic_bytes)[:, 0] / 2.7e11, rtol=1e-2
    )
    # What fills blocks is not passed on.
    np.testing.assert_array_equal(padded.on_chip_s, usual.on_chip_s)


@pytest.mark.device_matrix
def test_gradients(toy_device, small, workload, footprint, check_gradient):
    work = decode_operators(small, workload, footprint=footprint)
    check_gradient(lambda d: step_cost(d, work, temperature=0.1).total_s, toy_device.replace(superblocks=BLOCKS))


def test_work_must_say_how_many_tensors_there_are(toy_device, small, workload, footprint):
    blank = decode_operators(small, workload, footprint=footprint).replace(coded_tensors=None)
    with pytest.raises(ValueError, match=r"does not say how many tensors are coded.*step_operators"):
        padded_work(toy_device.replace(superblocks=BLOCKS), blank)
    assert padded_work(toy_device, blank) is blank
