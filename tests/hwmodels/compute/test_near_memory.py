import itertools
import random

import numpy as np
import pytest
import unit_checks

from hwmodels.compute.near_memory import NearMemoryUnit, active_share


def seconds_of(unit, m, k, n, weight_bits=16.0):
    return float(unit_checks.product_time(unit, m, k, n, weight_bits, 0.0))


BONDED = NearMemoryUnit(pes=5.0, reuse=7.0, block_depth=4.0, block_columns=3.0, frequency_hz=1.3e9, slice_bits=4.0)
#: Each activation on its own, 8-bit weights whole.
IN_BANK = BONDED.replace(reuse=1.0, slice_bits=8.0, pes=3.0)

share, product_seconds = unit_checks.compiled(active_share), unit_checks.product_time


@pytest.mark.device_matrix
def test_by_hand():
    # 9 x 10 by 10 x 8: 3 x 3 blocks on 5 PEs go round in 2; 9 activations are 2 passes of 7; 8.5 bits are 2 slices.
    assert seconds_of(BONDED, 9, 10, 8, 8.5) == pytest.approx(8 / 1.3e9)
    assert seconds_of(BONDED, 9, 10, 8, 4.5) == pytest.approx(4 / 1.3e9)
    # In the banks 9 blocks go round 3 PEs in 3, for each of 9 activations; narrow weights save nothing.
    assert seconds_of(IN_BANK, 9, 10, 8, 8.5) == pytest.approx(27 / 1.3e9)
    assert seconds_of(IN_BANK, 9, 10, 8, 4.5) == pytest.approx(27 / 1.3e9)
    # 80 weights take as long as two full blocks of 12 in each of 5 banks.
    assert float(share(BONDED, 10, 8)) == pytest.approx(80 / 120)
    # Of the 9 blocks that 3 banks read in 3 rounds, 5 are not full: 10 x 8 weights of 9 x 12.
    assert float(share(IN_BANK, 10, 8)) == pytest.approx(80 / 108)
    assert BONDED.peak_flops_per_s == pytest.approx(2 * 5 * 84 * 1.3e9)


@pytest.mark.parametrize(("pes", "tops"), [(16, 524), (32, 1048)])
def test_printed_throughput_of_bonded_elements(pes, tops):
    # ELMoE-3D, Table 1: 16 x 32 x 32 multipliers at 1 GHz in each; W8A8 is half.
    unit = NearMemoryUnit(
        pes=float(pes), reuse=16.0, block_depth=32.0, block_columns=32.0, frequency_hz=1e9, slice_bits=4.0
    )
    assert unit.peak_flops_per_s == pytest.approx(tops * 1e12, rel=1e-3)
    for bits, rate in ((4.5, 1.0), (8.5, 0.5)):
        seconds = seconds_of(unit, 16, 2048, 768, bits)
        assert 2 * 16 * 2048 * 768 / seconds == pytest.approx(rate * unit.peak_flops_per_s)


def simulate(unit, m, k, n, slices):
    """Blocks dealt out like cards, each PE through its own: cycles until the last is done, and each PE's blocks."""
    done = np.zeros((m, k, n), int)
    pes, reuse = int(unit.pes), int(unit.reuse)
    hands = [[] for _ in range(pes)]
    for i, block in enumerate(itertools.product(range(0, k, 4), range(0, n, 3))):
        hands[i % pes].append(block)
    cycles = [0] * pes
    for pe, hand in enumerate(hands):
        for (depth, column), first in itertools.product(hand, range(0, m, reuse)):
            done[first : first + reuse, depth : depth + 4, column : column + 3] += 1
            cycles[pe] += slices
    assert np.all(done == 1)
    return cycles, [len(hand) for hand in hands]


@pytest.mark.parametrize("unit", [BONDED, IN_BANK, BONDED.replace(pes=2.0, reuse=3.0)])
def test_block_by_block(unit):
    draw = random.Random(str(unit))
    for m in (*range(1, 18), *range(1, 18), 33):
        k, n = draw.randint(1, 24), draw.randint(1, 18)
        slices = 2 if unit.slice_bits == 4 else 1
        cycles, blocks = simulate(unit, m, k, n, slices)
        assert float(product_seconds(unit, m, k, n, 8.5, 0.0)) == pytest.approx(max(cycles) / 1.3e9), (m, k, n)
        used = float(share(unit, k, n))
        assert 0 < used <= sum(cycles) / (len(cycles) * max(cycles)) + 1e-6, (k, n)
        # As slow as a bank with the most blocks, all of them full.
        fullest = max(blocks) * min(k, 4) * min(n, 3)
        assert k * n / used == pytest.approx(fullest * len(blocks), rel=1e-5)


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0])
def test_traffic_of_more_weights_never_takes_less(temperature):
    unit = BONDED.replace(pes=6.0)
    for sides in (lambda extent: (7.0, extent), lambda extent: (extent, 7.0), lambda extent: (extent, extent)):
        extents = np.arange(0.5, 60.0, 0.5)
        k, n = np.broadcast_arrays(*sides(extents))
        used = np.array([float(share(unit, *one, temperature=temperature)) for one in zip(k, n, strict=True)])
        assert np.all(np.diff(k * n / used) >= -1e-4 * (k * n / used)[:-1])
