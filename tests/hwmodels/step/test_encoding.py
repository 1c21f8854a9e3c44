"""Encoders of new keys and values in a step: overlapped with it, never free of energy, and nothing where nothing is coded."""

import numpy as np
import pytest

from hwmodels import (
    COMPRESSED_COPY,
    Case,
    Chip,
    DraftCost,
    chain_plan,
    decode_operators,
    price,
    step_cost,
    uniform_footprint,
)
from hwmodels.decoders import Encoder
from hwmodels.decoders.encoder import encode_energy

ENCODER = Encoder(
    frequency_hz=1e9,
    values_per_cycle=0.7,
    count=3.0,
    area_m2=2e-8,
    power_w=0.02,
    value_energy_j=3e-12,
    latency_cycles=40.0,
)
CHIP = Chip(energy_j_per_flop=1e-12, static_power_w=0.3, area_m2=9e-5)
#: Elements of a new token: keys and values of 3 layers with 2 heads of 7.
TOKEN = 84
#: Sequences of the workload.
BATCH = 3


@pytest.fixture
def encoding(toy_device):
    memory = toy_device.memory.replace(energy_j_per_bit=4e-12)
    return toy_device.replace(encoder=ENCODER, chip=CHIP, memory=memory)


def test_by_hand(encoding, small, workload, footprint):
    work = decode_operators(small, workload, footprint=footprint)
    assert float(work.encoded_kv) == TOKEN * BATCH
    seconds = (TOKEN * BATCH / (3 * 0.7) + 40) / 1e9
    cost = step_cost(encoding, work)
    assert float(cost.encoding_s) == pytest.approx(seconds, rel=1e-6)
    # A unit takes 1.43 ns for a value.
    joules = TOKEN * BATCH * (0.02 / 0.7e9 + 3e-12)
    assert float(cost.energy.encoder_j) == pytest.approx(joules, rel=1e-6)


@pytest.mark.parametrize("temperature", [0.0, 0.2])
def test_it_counts_where_it_is_the_longest_and_its_energy_always(encoding, small, workload, footprint, temperature):
    work = decode_operators(small, workload, footprint=footprint)
    usual = step_cost(encoding.replace(encoder=None), work, temperature=temperature)
    step_s = float(usual.total_s)
    for factor in (1e-3, 0.9, 1.5, 20.0):
        rate = TOKEN * BATCH / (factor * step_s * 1e9)
        encoder = ENCODER.replace(values_per_cycle=rate, count=1.0, latency_cycles=0.0)
        found = step_cost(encoding.replace(encoder=encoder), work, temperature=temperature)
        assert float(found.encoding_s) == pytest.approx(factor * step_s, rel=1e-5)
        joined = max(1.0, factor) if temperature == 0 else (1.0 + factor**5) ** 0.2
        assert float(found.total_s) == pytest.approx(joined * step_s, rel=1e-5)
        np.testing.assert_array_equal(found.operator_s, usual.operator_s)
        assert found.energy is not None
        assert usual.energy is not None
        assert float(found.energy.encoder_j) == pytest.approx(float(encode_energy(encoder, work.encoded_kv)))
        assert float(found.energy.encoder_j) > 0
        static = 0.3 * (float(found.total_s) - step_s)
        expected = float(usual.energy.total_j) + static + float(found.energy.encoder_j)
        assert float(found.energy.total_j) == pytest.approx(expected, rel=1e-5)


def test_a_cache_of_16_bits_pays_nothing(encoding, small, workload, footprint):
    plain = footprint.replace(draft_kv_bits=16.0, target_kv_bits=16.0)
    for stored in (plain, uniform_footprint(16)):
        work = decode_operators(small, workload, footprint=stored)
        cost, without = (step_cost(device, work) for device in (encoding, encoding.replace(encoder=None)))
        assert float(cost.encoding_s) == 0
        assert float(cost.total_s) == float(without.total_s)
        assert cost.energy is not None
        assert without.energy is not None
        assert float(cost.energy.total_j) == float(without.energy.total_j)


@pytest.mark.device_matrix
def test_a_network_of_its_own_encodes_its_own_cache(encoding, small, workload, footprint):
    own = DraftCost(architecture=small.replace(num_layers=1.0))

    def cycle(target_bits, draft_bits, draft_cost):
        read = footprint.replace(target_kv_bits=target_bits, draft_kv_bits=draft_bits)
        found = price(Case(encoding, small, workload=workload, footprint=read, draft=draft_cost), chain_plan(4.0))
        steps = (found.draft, found.verify, found.baselines.stored)
        return [float(np.ravel(step.work.encoded_kv)[0]) / BATCH for step in steps]

    assert cycle(16.0, 8.0, own) == [28, 0, 0]
    assert cycle(8.0, 16.0, own) == [0, 5 * TOKEN, TOKEN]
    assert cycle(16.0, 8.0, COMPRESSED_COPY) == [0, 5 * TOKEN, TOKEN]


@pytest.mark.device_matrix
def test_gradients(toy_device, small, workload, footprint, check_gradient):
    work = decode_operators(small, workload, footprint=footprint)
    memory = toy_device.memory.replace(energy_j_per_bit=4e-12)
    # About as long as the step.
    step_s = float(step_cost(toy_device, work).total_s)
    encoder = ENCODER.replace(values_per_cycle=TOKEN * BATCH / (3 * step_s * 1e9))
    device = toy_device.replace(encoder=encoder, chip=CHIP, memory=memory)
    check_gradient(lambda d: step_cost(d, work, temperature=0.1).total_s, device)
    check_gradient(lambda d: step_cost(d, work, temperature=0.1).energy.total_j, device)  # pyright: ignore
