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
from hwmodels.memory import CACHE_BLOCK_BYTES
from hwmodels.network.operators import StepShape
from hwmodels.step.step_cost import padded_work

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
