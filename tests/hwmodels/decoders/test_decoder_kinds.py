import math
import random
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np

from hwmodels.decoders import lut, mx, unary
from hwmodels.decoders.decoder import cycles_per_symbol, decoded_bytes_per_cycle, decoders_needed


def test_unary_by_hand():
    # 3 counters of 8 bits: 24 bits per cycle; 2.4 bits per kept value of which 3 in 4 are: 13.3 values, 26.7 bytes.
    device = unary.unary_decoder(counters=3, frequency_hz=5e8, count=7.0, area_m2=2e-9, power_w=0.5, place="l2")
    np.testing.assert_allclose(decoded_bytes_per_cycle(device, unary.code_bits_per_value(2.4, 0.75)), 2 * 24 / 1.8)
    assert (device.kind, device.place, device.count) == ("unary", "l2", 7.0)
    np.testing.assert_allclose(device.total_area_m2, 14e-9)
    # Narrower chunks, and an output that is not wide enough.
    narrow = unary.unary_decoder(counters=3, chunk_bits=5, symbols_per_cycle=4.0, frequency_hz=5e8)
    np.testing.assert_allclose(decoded_bytes_per_cycle(narrow, 2.4), 8)
    np.testing.assert_allclose(decoded_bytes_per_cycle(narrow, 7.5), 2 * 15 / 7.5)


def test_unary_by_counting():
    # Algorithm 1 over a drawn stream: every cycle takes as many chunks as there are counters, whatever ones lie in them.
    draw = random.Random(5)
    ranks = [min(int(draw.expovariate(0.45)), 20) for _ in range(4000)]
    stream = "".join("0" * rank + "1" for rank in ranks)
    for counters, chunk_bits in ((1, 8), (5, 8), (3, 7)):
        width = counters * chunk_bits
        cycles, found = 0, 0
        for at in range(0, len(stream), width):
            cycles += 1
            found += stream[at : at + width].count("1")
        assert found == len(ranks)
        device = unary.unary_decoder(counters=counters, chunk_bits=chunk_bits, frequency_hz=1e9)
        expected = float(cycles_per_symbol(device, len(stream) / len(ranks))) * len(ranks)
        assert 0 <= cycles - expected * (1 - 1e-5) < 1.1


def test_mx_by_hand():
    # Blocks of 20 over 8 lanes take 3 cycles, the last with 4 idle lanes: 6.7 elements per cycle; two blocks at a time.
    np.testing.assert_allclose(mx.elements_per_cycle(8, 20, blocks_per_cycle=2), 40 / 3, rtol=1e-6)
    np.testing.assert_allclose(mx.elements_per_cycle(8, 24), 8)
    # A lane too many does not help, one that saves a cycle does.
    np.testing.assert_allclose(mx.elements_per_cycle(9, 20), 20 / 3, rtol=1e-6)
    np.testing.assert_allclose(mx.elements_per_cycle(10, 20), 10)
    np.testing.assert_allclose(mx.elements_per_cycle(37, 20), 20)
    np.testing.assert_allclose(mx.bits_per_value(4.0, 32), 4.25)
    np.testing.assert_allclose(mx.bits_per_value(4.0, 5, shared_bits=7), 5.4)
    # 6.7 elements, and the zeros of the bitmap between them: 3 in 5 values are elements.
    device = mx.mx_decoder(lanes_per_block=8, block_elements=20, kept_share=0.6, frequency_hz=1e9)
    np.testing.assert_allclose(decoded_bytes_per_cycle(device, 0.0), 2 * 20 / 3 / 0.6, rtol=1e-6)
    # Lengths of codewords do not matter to it.
    np.testing.assert_allclose(decoded_bytes_per_cycle(device, 99.0), 2 * 20 / 3 / 0.6, rtol=1e-6)


def test_mx_by_counting():
    draw, elements_per_cycle = random.Random(6), jax.jit(mx.elements_per_cycle)
    for _ in range(60):
        lanes, block, blocks = draw.randint(1, 40), draw.randint(1, 70), draw.randint(1, 9)
        cycles = left = 0
        for _ in range(blocks):
            left = block
            while left > 0:
                left -= lanes
                cycles += 1
        assert math.isclose(float(elements_per_cycle(lanes, block)), blocks * block / cycles, rel_tol=1e-6)
        for temperature in (0.01, 0.4, 1.0):
            rate = float(elements_per_cycle(lanes, block, temperature=temperature))
            assert blocks * block / cycles * (1 - 1e-6) <= rate <= lanes * (1 + 1e-6)


def test_lut_by_hand():
    # 128 codes: one unpacking, one lookup of values, one of scales (4 groups of 32), products of 2 registers of 16-bit values.
    assert float(lut.instructions_per_vector()) == 5
    # 64 codes of groups of 16: 4 groups, of which a lookup spreads 2; 4-byte values take 4 registers.
    by_hand = lut.instructions_per_vector(
        vector_bytes=64, group_size=16, groups_per_lookup=2, value_bytes=4, unpack_instructions=0
    )
    assert float(by_hand) == 0 + 1 + 2 + 4
    device = lut.lut_decoder(instructions=5.0, frequency_hz=1.1e9, units=4.0, instructions_per_cycle=2.0)
    np.testing.assert_allclose(decoded_bytes_per_cycle(device, 4.0), 2 * 128 * 2 / 5)
    assert (device.kind, device.place, device.count) == ("lut", "array_edge", 4.0)


def test_gradients(check_gradient):
    temperature = jnp.array([0.1, 0.6])

    def rates(t):
        devices = (
            unary.unary_decoder(counters=t[0], chunk_bits=t[1], symbols_per_cycle=t[2], frequency_hz=t[3], count=t[4]),
            mx.mx_decoder(
                lanes_per_block=t[0],
                block_elements=t[1],
                blocks_per_cycle=t[2],
                kept_share=t[5],
                frequency_hz=t[3],
                temperature=temperature,
            ),
            lut.lut_decoder(
                instructions=lut.instructions_per_vector(vector_bytes=t[6], group_size=t[7], groups_per_lookup=t[0]),
                vector_bytes=t[6],
                frequency_hz=t[3],
                units=t[4],
            ),
        )
        bits = unary.code_bits_per_value(t[8], t[5])
        rates = sum(jnp.sum(decoded_bytes_per_cycle(d, bits, temperature)) for d in devices)
        return rates + mx.bits_per_value(t[1], t[7])

    check_gradient(rates, [3.7, 9.3, 11.0, 2.0, 3.0, 0.7, 100.0, 31.0, 2.3])


def test_sweeps_over_counters_and_lanes():
    counters = jnp.arange(1.0, 6.0)
    needed = decoders_needed(unary.unary_decoder(counters=counters, frequency_hz=1e9), 1024, 2.85)
    # 512 values of 2.85 bits over 8 bits per counter.
    assert list(needed) == [math.ceil(Fraction(512) * Fraction("2.85") / (8 * n)) for n in range(1, 6)]
    rates = jax.vmap(lambda lanes: mx.elements_per_cycle(lanes, 32.0))(jnp.arange(1.0, 40.0))
    assert np.all(np.diff(np.asarray(rates)) >= 0)
