"""Room for requests, in tokens: those that fit by it are those that fit by what is held."""

import pytest

from hwmodels import DraftCost, catalog, uniform_footprint
from hwmodels.network.architecture import state_bytes
from hwmodels.serving.simulation import capacity_tokens, sequence_tokens
from hwmodels.step.capacity import held_bytes

DEVICE, TARGET = catalog.device("rtx-4090"), catalog.architecture("llama-3.1-8b")
SMALL = DraftCost(architecture=catalog.architecture("llama-3.2-1b"))
WIDTHS = uniform_footprint(9.0)


def test_room_for_keys_and_values():
    stored = {"weight_bits": WIDTHS.target_weight_bits, "kv_bits": WIDTHS.target_kv_bits}
    room = float(capacity_tokens(DEVICE, TARGET, footprint=WIDTHS))
    held = held_bytes(TARGET, batch=1.0, context_tokens=room, **stored)
    assert float(held.total) == pytest.approx(float(DEVICE.memory.capacity_bytes), rel=1e-4)
    assert float(capacity_tokens(DEVICE, TARGET, footprint=WIDTHS, draft_cost=SMALL)) < 0.95 * room
    large = catalog.architecture("llama-3.1-70b")
    assert float(capacity_tokens(DEVICE, large, footprint=WIDTHS)) == 0.0
    assert float(sequence_tokens(DEVICE, TARGET, footprint=WIDTHS)) == 0.0


@pytest.mark.parametrize("batch", [1, 7])
def test_states_of_linear_attention_take_room_once_for_each_sequence(batch):
    """They counted for every token: a request of 1400 tokens found no room on an H200."""
    device, network, widths = catalog.device("h200-sxm"), catalog.architecture("qwen3.5-27b"), uniform_footprint(16.0)
    room, states = (float(of(device, network, footprint=widths)) for of in (capacity_tokens, sequence_tokens))
    # 16 layers of the 64 cache 2 x 4 x 256 elements of 2 bytes.
    assert states == pytest.approx(float(state_bytes(network)) / (16 * 2048 * 2), rel=1e-6)
    stored = {"weight_bits": widths.target_weight_bits, "kv_bits": widths.target_kv_bits}
    held = held_bytes(network, batch=float(batch), context_tokens=room / batch - states, **stored)
    assert float(held.total) == pytest.approx(float(device.memory.capacity_bytes), rel=1e-4)
