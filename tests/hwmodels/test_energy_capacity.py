"""Energy of a step, what must be held, the longest context, and elasticities."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import (
    Chip,
    MemoryTier,
    Workload,
    catalog,
    decode_operators,
    parameters,
    step_cost,
    uniform_footprint,
    uniform_weight_bits,
)
from hwmodels.compute.systolic.array import OnChipBuffer
from hwmodels.compute.systolic.unit import SystolicUnit, gemm_cost
from hwmodels.decoders import Decoder
from hwmodels.step.capacity import held_bytes, longest_context

pytestmark = pytest.mark.device_matrix

BITS = uniform_weight_bits(16.0)
CHIP = Chip(energy_j_per_flop=0.7e-12, static_power_w=3.0, area_m2=9e-5)


@pytest.fixture
def near_and_far(toy_device):
    near = MemoryTier(bandwidth_bytes_per_s=3e11, efficiency=0.9, capacity_bytes=3000.0, energy_j_per_bit=1e-12)
    far = MemoryTier(bandwidth_bytes_per_s=5e10, efficiency=0.8, capacity_bytes=1e9, energy_j_per_bit=4e-12)
    return toy_device.replace(memory=near, spill=(far,), chip=CHIP)


def test_energy_by_hand(small, toy_device, workload):
    memory = toy_device.memory.replace(energy_j_per_bit=5e-12)
    work = decode_operators(small, workload, footprint=uniform_footprint(16))
    cost = step_cost(toy_device.replace(memory=memory, chip=CHIP), work)
    energy = cost.energy
    assert float(energy.arithmetic_j) == pytest.approx(float(work.flops.sum()) * 0.7e-12)
    assert float(energy.memory_j[0]) == pytest.approx(float(work.memory_bytes.sum()) * 8 * 5e-12)
    assert float(energy.static_j) == pytest.approx(3.0 * float(cost.total_s))
    parts = energy.arithmetic_j + energy.memory_j.sum() + energy.static_j + energy.decoder_j
    assert float(energy.total_j) == pytest.approx(float(parts))
    assert float(cost.power_w) == pytest.approx(float(energy.total_j / cost.total_s))


def test_energy_without_a_chip_is_not_known(small, toy_device, workload):
    cost = step_cost(toy_device, decode_operators(small, workload, footprint=uniform_footprint(16)))
    assert cost.energy is None
    assert cost.power_w is None


def test_traffic_goes_where_tensors_lie(small, near_and_far, workload):
    # KV: 84 elements, 3 sequences, 118 tokens with the new one, 2 bytes: 59 kB; 3 kB of it lie near, all weights far.
    work = decode_operators(small, workload, footprint=uniform_footprint(16))
    by_memory = np.asarray(step_cost(near_and_far, work).traffic_bytes, float)
    share = 3000 / (84 * 3 * 118 * 2)
    kv, weights, activations = (float(x.sum()) for x in (work.kv_bytes, work.weight_bytes, work.activation_bytes))
    assert by_memory.sum() == pytest.approx(kv + weights + activations, rel=1e-6)
    assert by_memory[:, 0].sum() == pytest.approx(share * kv + activations, rel=1e-6)
    assert by_memory[:, 1].sum() == pytest.approx((1 - share) * kv + weights, rel=1e-6)


def test_gradient_with_two_memories(small, near_and_far, workload, check_gradient):
    # Endless room and tiny memories: the borders of what fits lie elsewhere.
    def total(device):
        work = decode_operators(small, workload, footprint=uniform_footprint(16))
        cost = step_cost(device, work, temperature=0.1)
        return cost.total_s + 1e3 * cost.energy.total_j

    check_gradient(total, near_and_far)


def test_held_bytes_by_hand(small):
    held = held_bytes(small, batch=5, context_tokens=11, weight_bits=BITS, kv_bits=4)
    assert float(held.kv) == 84 * 55 / 2
    assert float(held.weights) == 2 * sum(parameters(small).values())
    assert float(held.total) == float(held.kv + held.weights)


@pytest.mark.parametrize("window_layers", [0.0, 2.0])
@pytest.mark.parametrize("context", [3.0, 50.0])
def test_longest_context_inverts_what_is_held(small, window_layers, context):
    shape = dataclasses.replace(small, num_window_layers=window_layers, window_tokens=6.0, sink_tokens=1.0)
    arguments = {"batch": 5, "weight_bits": BITS, "kv_bits": 4}
    held = held_bytes(shape, context_tokens=context, **arguments)
    assert float(longest_context(shape, budget_bytes=held.total, **arguments)) == pytest.approx(context, rel=1e-3)


def test_decoders_hold_up_a_step_when_there_are_too_few(small, toy_device, workload, footprint):
    work = decode_operators(small, workload, footprint=footprint)
    # All matrices and the KV are read in 13.9 and 12.7 bits; embedding rows, vectors and head too.
    coded = float(work.coded_elements.sum())
    weights = sum(parameters(small).values()) - 310 + 30
    assert coded == pytest.approx(weights + 84 * 3 * 117)
    decoder = Decoder(frequency_hz=1e9, symbols_per_cycle=2.0, count=3.0, power_w=4e-3, latency_cycles=5.0, kind="mx")
    slow, none = step_cost(toy_device.replace(decoder=decoder), work), step_cost(toy_device, work)
    assert float(slow.decoding_s.sum()) == pytest.approx(coded / 6e9, rel=1e-6)
    launches = float(work.launches[np.asarray(work.coded_elements) > 0].sum())
    busy = np.maximum(np.maximum(slow.compute_s, slow.memory_s), slow.decoding_s)
    fixed = toy_device.operator_latency_s * float(work.launches.sum()) + 5e-9 * launches
    assert float(slow.total_s) == pytest.approx(busy.sum() + fixed, rel=1e-5)
    assert float(slow.total_s) > float(none.total_s)
    many = step_cost(toy_device.replace(decoder=decoder.replace(count=1e6, latency_cycles=0.0)), work)
    assert float(many.total_s) == pytest.approx(float(none.total_s), rel=1e-6)
    # A unit works for half a nanosecond on a symbol.
    energy = step_cost(toy_device.replace(decoder=decoder, chip=CHIP), work).energy
    assert float(energy.decoder_j) == pytest.approx(coded * 0.5e-9 * 4e-3, rel=1e-5)


def test_a_systolic_array_charges_its_own_energies(small, toy_device, workload):
    buffer = OnChipBuffer(bandwidth_bytes_per_s=1e12, access_bytes=4.0, access_energy_j=3e-12)
    array = SystolicUnit(
        rows=6.0,
        columns=5.0,
        frequency_hz=1e9,
        mac_energy_j=2e-12,
        input_buffer=buffer,
        weight_buffer=buffer,
        output_buffer=buffer,
    )
    device = toy_device.replace(matrix_unit=array, chip=CHIP)
    work = decode_operators(small, workload, footprint=uniform_footprint(16))
    energy = step_cost(device, work).energy
    shapes = work.shapes
    own = gemm_cost(array, shapes.m, shapes.k, shapes.n).total_j * shapes.products * work.launches
    rest = np.where(np.asarray(shapes.products) > 0, 0.0, np.asarray(work.flops)).sum() * 0.7e-12
    expected = float(jnp.sum(jnp.where(shapes.products > 0, own, 0.0))) + rest
    assert float(energy.arithmetic_j) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("context", "tokens_per_s"), [(128, 40.09), (2048, 31.66), (4096, 25.86), (16384, 12.32)])
def test_an_fpga_board_decodes_as_printed(context, tokens_per_s):
    # Autoregressive rows of the FPGA paper's Table I, to which the board's two numbers are calibrated.
    work = decode_operators(
        catalog.architecture("llama-3.1-8b"), Workload(context_tokens=float(context)), footprint=uniform_footprint(16)
    )
    assert 1 / float(step_cost(catalog.device("alveo-v80"), work).total_s) == pytest.approx(tokens_per_s, rel=5e-3)
