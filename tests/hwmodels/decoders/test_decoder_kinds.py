import random

import numpy as np

from hwmodels.decoders import Decoder
from hwmodels.decoders.decoder import cycles_per_symbol, decoded_bytes_per_cycle


def test_unary_by_hand():
    # 3 counters of 8 bits: 24 bits per cycle; 2.4 bits per kept value of which 3 in 4 are: 13.3 values, 26.7 bytes.
    device = Decoder(5e8, code_bits_per_cycle=24.0, count=7.0, area_m2=2e-9, kind="unary")
    np.testing.assert_allclose(decoded_bytes_per_cycle(device, 2.4 * 0.75), 2 * 24 / 1.8)
    np.testing.assert_allclose(device.total_area_m2, 14e-9)
    # Narrower chunks, and an output that is not wide enough.
    narrow = Decoder(5e8, code_bits_per_cycle=15.0, symbols_per_cycle=4.0, kind="unary")
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
        device = Decoder(1e9, code_bits_per_cycle=width, kind="unary")
        expected = float(cycles_per_symbol(device, len(stream) / len(ranks))) * len(ranks)
        assert 0 <= cycles - expected * (1 - 1e-5) < 1.1
