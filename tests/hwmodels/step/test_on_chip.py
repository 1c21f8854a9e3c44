"""A decoder's place: what passes buffer and links of the chip, when it holds up a step, and what it costs."""

from typing import Any

import numpy as np
import pytest

from hwmodels import (
    OPERATORS,
    OnChipPath,
    catalog,
    decode_operators,
    step_cost,
    step_operators,
    uniform_weight_bits,
)
from hwmodels.decoders import Decoder
from hwmodels.decoders.decoder import PLACES
from hwmodels.network.operators import StepShape
from hwmodels.step import on_chip_cost

PATH = OnChipPath(buffer_bytes_per_s=7e11, link_bytes_per_s=5e11)
DECODER = Decoder(frequency_hz=1e9, symbols_per_cycle=1e6, kind="mx")
STEP: dict[str, Any] = {"tokens": 1.0, "batch": 1.0, "context_tokens": 900.0, "kv_bits": 6.85}
ATTENTION = OPERATORS.index("attention")


def placed(device, place, path=PATH, **decoder):
    return device.replace(decoder=DECODER.replace(place=place, **decoder), on_chip_path=path)


@pytest.fixture
def work(small, workload, footprint):
    return decode_operators(small, workload, footprint=footprint)


def widened(work, factor):
    """Bytes of a step whose coded values are 16 bits wide, keys and values `factor` times."""
    added = 2.0 * np.asarray(work.coded_elements, float) - np.asarray(work.coded_bits, float) / 8.0
    assert np.all(added >= 0)
    assert np.any(added > 0)
    added[ATTENTION] *= factor
    return np.asarray(work.memory_bytes, float) + (factor - 1.0) * np.asarray(work.kv_bytes, float) + added


def test_what_passes_by_hand(toy_device, work):
    device = toy_device.replace(kv_traffic_factor=1.7)
    coded = np.asarray(work.memory_bytes) + 0.7 * np.asarray(work.kv_bytes)
    wide = widened(work, 1.7)
    passes = {"dma": (wide, wide), "l2": (coded, wide), "array_edge": (coded, coded)}
    assert passes.keys() == PLACES.keys()
    for place, (in_buffer, on_links) in passes.items():
        found = on_chip_cost(placed(device, place), work)
        np.testing.assert_allclose(found.limit_s[0], in_buffer / 7e11, rtol=1e-5)
        np.testing.assert_allclose(found.limit_s[1], on_links / 5e11, rtol=1e-5)
        assert found.link_j is None
        # Links without a rate of their own deliver what the buffer does.
        (alone,) = on_chip_cost(placed(device, place, OnChipPath(7e11)), work).limit_s
        np.testing.assert_allclose(alone, on_links / 7e11, rtol=1e-5)
    for decoder in (None, *(Decoder(1.0, kind="none", place=place) for place in ("dma", "l2"))):
        found = on_chip_cost(device.replace(decoder=decoder, on_chip_path=PATH), work)
        np.testing.assert_allclose(found.limit_s[1], coded / 5e11, rtol=1e-5)


def test_a_step_takes_the_longest(toy_device, work):
    usual = step_cost(toy_device, work)
    for place in PLACES:
        found = step_cost(placed(toy_device, place), work)
        busy = np.max([found.compute_s, found.memory_s, found.on_chip_s, found.decoding_s], axis=0)
        launches = toy_device.operator_latency_s * float(work.launches.sum())
        assert float(found.total_s) == pytest.approx(busy.sum() + launches, rel=1e-5)
        np.testing.assert_array_equal(
            found.on_chip_s, np.max(on_chip_cost(placed(toy_device, place), work).limit_s, axis=0)
        )
    # Links of 5e11 behind a memory of 2.7e11 carry 13.9 bits of a weight, and not 16 of a weight that came in 6.
    assert float(step_cost(placed(toy_device, "array_edge"), work).total_s) == float(usual.total_s)
    assert float(usual.on_chip_s.sum()) == 0


@pytest.mark.device_matrix
def test_the_place_decides_where_links_are_slower_than_what_is_decoded():
    # A draft of 5.11 bits at 1008 GB/s is 3.2 TB/s decoded, which 2 TB/s of links do not carry; 5.1 TB/s do.
    gpu, shape = catalog.device("rtx-4090"), catalog.architecture("llama-3.1-8b")
    work = step_operators(shape, StepShape(weight_bits=uniform_weight_bits(5.11), **STEP))
    seconds = {
        (place, rate): float(step_cost(placed(gpu, place, OnChipPath(5.1e12, rate)), work).total_s)
        for place in PLACES
        for rate in (5.1e12, 2e12)
    }
    alone = float(step_cost(gpu, work).total_s)
    assert {seconds[place, 5.1e12] for place in PLACES} == {alone} == {seconds["array_edge", 2e12]}
    assert seconds["l2", 2e12] == seconds["dma", 2e12] == pytest.approx(alone * 1008 / 2000 * 16 / 5.11, rel=0.02)
    # A slow buffer is what tells a GPU's L2 from an NPU's DMA.
    slow = {place: placed(gpu, place, OnChipPath(2e12, 5.1e12)) for place in PLACES}
    found = {place: float(step_cost(device, work).total_s) for place, device in slow.items()}
    assert found["array_edge"] == found["l2"] == alone < 0.7 * found["dma"]


@pytest.mark.device_matrix
@pytest.mark.parametrize("place", PLACES)
def test_gradients(place, toy_device, small, workload, footprint, check_gradient):
    work = decode_operators(small, workload, footprint=footprint)
    device = placed(toy_device, place, symbols_per_cycle=300.0, code_bits_per_cycle=2000.0)
    check_gradient(lambda d: step_cost(d, work, temperature=0.1).total_s, device)
