import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels.decoders import Decoder
from hwmodels.decoders.decode_cost import (
    COMBINATIONS,
    decode_energy,
    decode_time,
    energy_per_bit,
    fill_time,
    read_time,
    total_power,
)
from hwmodels.decoders.decoder import decoded_bytes_per_s, decoders_needed

NUMBERS = st.floats(0.01, 100.0)
TEMPERATURES = st.one_of(st.just(0.0), st.floats(1e-4, 1.0))

#: 12 symbols, or 30 bits, per cycle; 5 units at 200 MHz.
UNITS = Decoder(
    frequency_hz=2e8,
    symbols_per_cycle=12.0,
    code_bits_per_cycle=30.0,
    symbol_bytes=2.0,
    count=5.0,
    area_m2=3e-9,
    power_w=0.006,
    symbol_energy_j=4e-13,
    latency_cycles=14.0,
    kind="unary",
    place="dma",
)
read = jax.jit(read_time, static_argnames="combination")


def test_by_hand():
    # Codewords of 3 bits: 10 symbols or 20 bytes per cycle and unit, 20e9 bytes/s in all. 3e9 bytes take 0.15 s.
    np.testing.assert_allclose(decode_time(UNITS, 3e9, 3.0), 0.15)
    np.testing.assert_allclose(fill_time(UNITS), 70e-9)
    # Memory alone 0.1 s: half as long again, and two starts.
    result = read(UNITS, 3e9, 3.0, 0.1, reads=2.0)
    np.testing.assert_allclose(result.total_s, 0.15 + 140e-9)
    np.testing.assert_allclose(result.stall_factor, 1.5 + 1.4e-6)
    np.testing.assert_allclose(read(UNITS, 3e9, 3.0, 0.1, combination="serial").total_s, 0.25 + 70e-9)
    # Codewords of 2 bits: output is the limit, 24 bytes.
    np.testing.assert_allclose(decode_time(UNITS, 3e9, 2.0), 0.125)
    # 1.5e9 symbols of 5 ns at 6 mW, and 0.4 pJ each.
    energy = 1.5e9 * (5e-9 * 0.1 * 0.006 + 4e-13)
    np.testing.assert_allclose(decode_energy(UNITS, 3e9, 3.0), energy, rtol=1e-6)
    np.testing.assert_allclose(energy_per_bit(UNITS, 3.0), energy / 24e9, rtol=1e-6)
    np.testing.assert_allclose(total_power(UNITS, 3.0), energy / 0.15, rtol=1e-6)
    np.testing.assert_allclose(UNITS.total_area_m2, 15e-9)


def test_no_stall_from_the_needed_number_on():
    # Memory brings 64 decoded bytes per cycle of the decoder: 3.2 units.
    needed = decoders_needed(UNITS, 64, 3.0)
    assert needed == 4
    hidden = dataclasses.replace(UNITS, latency_cycles=0.0)
    memory_s = 3e9 / (64 * 2e8)
    factors = [
        float(read(dataclasses.replace(hidden, count=float(n)), 3e9, 3.0, memory_s).stall_factor) for n in range(1, 7)
    ]
    np.testing.assert_allclose(factors, [3.2, 1.6, 3.2 / 3, 1, 1, 1], rtol=1e-6)


@pytest.mark.device_matrix
@settings(max_examples=40)
@given(st.sampled_from(COMBINATIONS), NUMBERS, NUMBERS, NUMBERS, TEMPERATURES)
def test_bounds_and_scaling(combination, volume, code_bits, memory_s, temperature):
    at = lambda device, memory: read(
        device, volume * 1e9, code_bits, memory, combination=combination, temperature=temperature
    )
    here = at(UNITS, memory_s)
    assert float(here.stall_factor) >= 1 - 1e-6
    assert float(here.total_s) >= max(float(here.decode_s), memory_s) * (1 - 1e-6)
    assert float(here.total_s) <= (float(here.decode_s) + memory_s) * (1 + 1e-5) + float(here.fill_s)
    # Doubling all rates (a clock counts cycles of latency, too) halves the time.
    twice = at(dataclasses.replace(UNITS, frequency_hz=4e8), memory_s / 2)
    np.testing.assert_allclose(twice.total_s, here.total_s / 2, rtol=1e-5)
    # More of anything that decodes never takes longer.
    for name in ("symbols_per_cycle", "code_bits_per_cycle", "count", "frequency_hz"):
        faster = at(dataclasses.replace(UNITS, **{name: 1.4 * getattr(UNITS, name)}), memory_s)
        assert float(faster.total_s) <= float(here.total_s) * (1 + 1e-6)
    # Energy does not depend on how many share the work.
    np.testing.assert_allclose(
        decode_energy(dataclasses.replace(UNITS, count=11.0), volume, code_bits),
        decode_energy(UNITS, volume, code_bits),
    )


def test_power_times_time_is_energy():
    for code_bits, temperature in ((0.7, 0.0), (2.5, 0.4), (9.0, 1.0)):
        busy = decode_time(UNITS, 3e9, code_bits, temperature=temperature)
        np.testing.assert_allclose(
            total_power(UNITS, code_bits, temperature=temperature) * busy,
            decode_energy(UNITS, 3e9, code_bits, temperature=temperature),
            rtol=1e-6,
        )
        if temperature == 0:
            np.testing.assert_allclose(decoded_bytes_per_s(UNITS, code_bits) * busy, 3e9, rtol=1e-6)


@pytest.mark.device_matrix(1)
@pytest.mark.parametrize("combination", COMBINATIONS)
def test_gradients(check_gradient, combination):
    # Memory is slower, decoding is slower, output instead of parsing; exact, smooth, and the sum of both.
    code_bits, memory_s = jnp.array([[3.0], [3.0], [1.1]]), jnp.array([[0.19], [0.07], [0.07]])
    temperatures = jnp.array([0.0, 0.2, 1.0])

    def total(tree):
        device, decoded_bytes, bits, memory, reads = tree
        result = read_time(
            device, decoded_bytes, bits, memory, reads=reads, combination=combination, temperature=temperatures
        )
        energy = decode_energy(device, decoded_bytes, bits, temperature=temperatures)
        return jnp.sum(result.total_s + energy + total_power(device, bits, temperature=temperatures))

    # The latency is long, so that its gradient is not lost beside the others.
    check_gradient(total, (dataclasses.replace(UNITS, latency_cycles=9e5), 3e9, code_bits, memory_s, 2.0))
