import dataclasses
import math
import random
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoder_witness import stalls
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.decoders import Decoder, decoder
from hwmodels.decoders.decoder import (
    bits_at,
    decoded_bytes_per_cycle,
    decoded_bytes_per_s,
    decoders_needed,
    is_coded_at,
)

TENTHS = st.integers(1, 400).map(lambda n: n / 10)


def unit(symbols=math.inf, bits=math.inf, **others):
    return Decoder(frequency_hz=7e8, symbols_per_cycle=symbols, code_bits_per_cycle=bits, kind="unary", **others)


def test_by_hand():
    # 40 bits per cycle of codewords of 2.5 bits are 16 symbols, of 3 bytes each 48 bytes; 9 units at 700 MHz.
    parsing = unit(bits=40.0, symbol_bytes=3.0, count=9.0)
    np.testing.assert_allclose(decoded_bytes_per_cycle(parsing, 2.5), 48)
    np.testing.assert_allclose(decoded_bytes_per_s(parsing, 2.5), 48 * 9 * 7e8)
    # 200 bytes per cycle are 4.2 units of 48; in 3 shares of 66.7 bytes 1.4, so 2 each.
    assert decoders_needed(parsing, 200, 2.5) == 5
    assert decoders_needed(parsing, 200, 2.5, partitions=3) == 6
    # It can put out 11 only: 33 bytes, 6.1 units.
    both = unit(symbols=11.0, bits=40.0, symbol_bytes=3.0)
    np.testing.assert_allclose(decoded_bytes_per_cycle(both, 2.5), 33, rtol=1e-6)
    assert decoders_needed(both, 200, 2.5) == 7
    # With codewords of 8 bits parsing is the limit again: 5 symbols, 15 bytes, 13.3 units.
    assert decoders_needed(both, 200, 8) == 14


def test_forty_units_of_a_fortieth_each_are_enough():
    for width in (12.8, np.float32(12.8), np.float64(12.8), jnp.float32(12.8)):
        assert decoders_needed(unit(symbols=width), 1024, 2.85) == 40
    for width, expected in ((12.80001, 40), (12.79999, 41)):
        assert decoders_needed(unit(symbols=width), 1024, 2.85) == expected
    # In binary 0.3 is less than a third of 0.9.
    assert decoders_needed(unit(symbols=0.3, symbol_bytes=1), 0.9, 1) == 3
    assert type(decoders_needed(unit(symbols=12.8), 1024, 2.85)) is int


def cases(seed, count):
    """Rates, codeword lengths and demands whose numbers have few decimals; some demands are whole multiples of the rate."""
    draw = random.Random(seed)
    while count:
        period = draw.choice((1, 2, 4, 5))
        lengths = [draw.randint(1, 7) for _ in range(period)]
        mean = Fraction(sum(lengths), period)
        bits = draw.choice((1, 3, 8, 12, 19))
        symbols = draw.choice((None, Fraction(1), Fraction(7, 5), Fraction(13, 4)))
        rate = bits / mean if symbols is None else min(bits / mean, symbols)
        # A whole multiple of the rate, where it can be written down; otherwise anything.
        demand = rate * draw.randint(1, 5) if draw.random() < 0.4 else Fraction(draw.randint(1, 90), 10)
        deficit = demand - (math.ceil(demand / rate) - 1) * rate
        if Fraction(str(float(demand))) == demand and deficit >= Fraction(1, 8) and demand / rate <= 9:
            count -= 1
            yield draw, lengths, mean, bits, symbols, rate, demand


@pytest.mark.device_matrix
def test_the_smallest_number_that_never_stalls():
    multiples = limits = 0
    for draw, lengths, mean, bits, symbols, rate, demand in cases(3, 70):
        limit = math.inf if symbols is None else float(symbols)
        needed = decoders_needed(unit(symbols=limit, bits=bits, symbol_bytes=1), float(demand), float(mean))
        shortage = demand - (needed - 1) * rate
        assert not stalls(draw, needed, lengths, bits, symbols, demand, deficit=0), (lengths, bits, symbols, demand)
        assert stalls(draw, needed - 1, lengths, bits, symbols, demand, deficit=shortage), (lengths, bits, demand)
        multiples += needed * rate == demand
        limits += symbols is not None and symbols < bits / mean
    # Both kinds of limit, and demands that leave nothing over.
    assert multiples > 10
    assert 10 < limits < 60


@given(TENTHS, TENTHS, st.integers(0, 3000), TENTHS, st.integers(1, 9))
def test_enough_and_one_fewer_is_not(symbols, bits, demand, code_bits, partitions):
    device = unit(symbols=symbols, bits=bits)
    needed = decoders_needed(device, demand, code_bits, partitions=partitions)
    exact = lambda number: Fraction(str(number))
    rate = 2 * min(exact(symbols), exact(bits) / exact(code_bits))
    assert needed % partitions == 0
    assert needed * rate >= demand
    assert demand == 0 or (needed - partitions) * rate < demand
    # Faster units, shorter codewords, less demand, fewer walls: never more units.
    faster = dataclasses.replace(device, symbols_per_cycle=symbols * 2, code_bits_per_cycle=bits * 2)
    assert decoders_needed(faster, demand, code_bits, partitions=partitions) <= needed
    assert decoders_needed(device, demand, code_bits / 2, partitions=partitions) <= needed
    assert decoders_needed(device, demand // 2, code_bits, partitions=partitions) <= needed
    assert decoders_needed(device, demand, code_bits) <= needed


def test_places():
    coded = {
        place: [is_coded_at(unit(place=place), level) for level in ("dram", "on_chip", "link")]
        for place in decoder.PLACES
    }
    assert coded == {"dma": [True, False, False], "l2": [True, True, False], "array_edge": [True, True, True]}
    assert bits_at(unit(place="dma", symbol_bytes=3.0), "dram", 5.11) == 5.11
    assert bits_at(unit(place="dma", symbol_bytes=3.0), "on_chip", 5.11) == 24
    assert bits_at(Decoder(1.0, kind="none", place="l2"), "dram", 5.11) == 16
    with pytest.raises(ValueError, match="choose one of dram, on_chip, link"):
        is_coded_at(Decoder(1.0, kind="none"), "l1")


@pytest.mark.device_matrix
def test_longer_codewords_are_parsed_more_slowly():
    device = unit(symbols=11.0, bits=40.0)
    rates = np.asarray(decoded_bytes_per_cycle(device, jnp.linspace(0.0, 12.0, 25)))
    assert np.all(np.diff(rates) <= 0)
    np.testing.assert_allclose(rates[:8], 22)  # up to 40 / 11 = 3.6 bits output is the limit
    assert rates[8] < 21
    # The smooth rate is lower, never higher.
    assert np.all(np.asarray(decoded_bytes_per_cycle(device, jnp.linspace(0.1, 12.0, 25), 0.3)) < rates[0])


@pytest.mark.device_matrix
def test_gradients_of_rates(check_gradient):
    # Either side of the kink at 3.6 bits, and a unit without output limit; exact, smooth, and the sum of both.
    code_bits, limit = jnp.array([[2.9], [5.3], [2.9]]), jnp.array([[1.0], [1.0], [1e30]])
    temperatures = jnp.array([0.0, 0.17, 1.0])

    def rates(tree):
        device, bits = tree
        device = dataclasses.replace(device, symbols_per_cycle=device.symbols_per_cycle * limit)
        return jnp.sum(decoded_bytes_per_s(device, bits, temperatures))

    check_gradient(rates, (unit(symbols=11.0, bits=40.0, symbol_bytes=3.0, count=9.0), code_bits))
    # An infinite limit is as good as a very high one.
    gradient = jax.jit(jax.grad(lambda device: jnp.sum(decoded_bytes_per_s(device, 2.9, temperatures))))
    both = gradient(unit(bits=40.0)), gradient(unit(symbols=1e30, bits=40.0))
    for infinite, high in zip(*map(jax.tree.leaves, both)):
        np.testing.assert_allclose(infinite, high, rtol=1e-6, atol=1e-12)
