import dataclasses
import random

import numpy as np
import pytest

from hwmodels.decoders import Encoder
from hwmodels.decoders.encoder import encode_energy, encode_time, encoders_needed

UNITS = Encoder(
    frequency_hz=3e8,
    values_per_cycle=4.0,
    count=3.0,
    area_m2=2e-8,
    power_w=0.02,
    value_energy_j=5e-12,
    latency_cycles=60.0,
)


def test_by_hand():
    # 120,000 values over 3 units of 4 per cycle: 10,000 cycles, 60 more for the last, at 300 MHz.
    np.testing.assert_allclose(encode_time(UNITS, 120_000), 10_060 / 3e8, rtol=1e-6)
    assert float(encode_time(UNITS, 0)) == 0
    np.testing.assert_allclose(encode_energy(UNITS, 120_000), 0.02 * 30_000 / 3e8 + 120_000 * 5e-12, rtol=1e-6)
    np.testing.assert_allclose(UNITS.total_area_m2, 6e-8)
    # A step of 5,060 cycles leaves 5,000, in which a unit encodes 20,000.
    step_s = 5060 / 3e8
    assert encoders_needed(UNITS, 119_000, step_s) == 6
    assert float(encode_time(dataclasses.replace(UNITS, count=6.0), 119_000)) <= step_s
    assert encoders_needed(UNITS, 0, step_s) == 0


def test_cycle_by_cycle():
    draw = random.Random(8)
    for _ in range(50):
        rate, values, cycles = draw.randint(1, 7), draw.randint(1, 5000), draw.randint(40, 900)
        latency = draw.randint(0, 30)
        device = Encoder(frequency_hz=1.0, values_per_cycle=rate, latency_cycles=latency)

        def done_in_time(units, rate=rate, values=values, cycles=cycles, latency=latency):
            left, cycle = values, 0
            while left > 0 and cycle <= cycles:
                left, cycle = left - units * rate, cycle + 1
            return cycle + latency <= cycles

        needed = encoders_needed(device, values, cycles)
        assert done_in_time(needed)
        assert not done_in_time(needed - 1) or needed == 1


def test_few_encoders_are_enough():
    # The cache of a token against reading a model of thousands of times as many weights, at equal rates.
    weights, values = 8_000_000_000, 65_536
    device = Encoder(frequency_hz=1e9, values_per_cycle=1.0)
    step_s = weights / 1e12
    assert encoders_needed(device, values, step_s) == 1


@pytest.mark.device_matrix
def test_gradients(check_gradient):
    # The latency is long here, so that its gradient is not lost beside the others.
    slow = dataclasses.replace(UNITS, latency_cycles=6000.0)
    check_gradient(lambda tree: (encode_time(*tree) + encode_energy(*tree)) * 1e4, (slow, 119_000.0))
