import itertools
import random

import numpy as np
import pytest
import unit_checks

from hwmodels.compute.fpga_array import FpgaArray


def seconds_of(unit, m, k, n, weight_bits=16.0):
    return float(unit_checks.product_time(unit, m, k, n, weight_bits, 0.0))


def array_of(**changes):
    array = FpgaArray(rows=5.0, columns=6.0, frequency_hz=2.3e8)
    return array.replace(**changes)


def test_by_hand():
    # 3 x 11 by 11 x 13 on 5 x 6: 3 folds of k, 3 of n, a cycle each for every one of 3 tokens.
    assert seconds_of(array_of(), 3, 11, 13) == pytest.approx(27 / 2.3e8)
    # Two products per PE over k: 2 folds. Three tokens at a time on 2 columns each: 7 folds of n, one pass.
    wide = array_of(macs_per_pe=2.0, parallel_tokens=3.0)
    assert seconds_of(wide, 3, 11, 13) == pytest.approx(14 / 2.3e8)
    # Pairs of 8-bit weights share a multiplier, so 6 columns give 12 outputs: 2 folds; 16-bit ones do not.
    packed = array_of(packing=2.0, efficiency=0.5)
    assert seconds_of(packed, 3, 11, 13, 8.5) == pytest.approx(2 * 18 / 2.3e8)
    assert seconds_of(packed, 3, 11, 13) == pytest.approx(2 * 27 / 2.3e8)
    assert (array_of().peak_flops_per_s, packed.peak_flops_per_s) == (2 * 30 * 2.3e8, 4 * 30 * 2.3e8)


def simulate(m, k, n, tokens, narrow):
    """Cycle by cycle on 4 x 6 PEs, in groups of columns: which products are done, and that none is done twice."""
    done = np.zeros((m, k, n), int)
    outputs = 6 // tokens * (2 if narrow else 1)
    cycles = 0
    for first, depth, column in itertools.product(range(0, m, tokens), range(0, k, 4), range(0, n, outputs)):
        for token in range(first, min(first + tokens, m)):
            done[token, depth : depth + 4, column : column + outputs] += 1
        cycles += 1
    assert np.all(done == 1)
    return cycles


@pytest.mark.parametrize("tokens", [1, 2, 3, 6])
def test_cycle_by_cycle(tokens):
    draw = random.Random(tokens)
    array = array_of(rows=4.0, packing=2.0, parallel_tokens=float(tokens))
    for m in (*range(1, 18), 33, 63, 64):
        k, n = draw.randint(1, 24), draw.randint(1, 36)
        for bits in (8.5, 16.0):
            seconds = float(unit_checks.product_time(array, m, k, n, bits, 0.0))
            assert seconds * 2.3e8 == pytest.approx(simulate(m, k, n, tokens, bits < 10), rel=1e-5), (m, k, n, bits)


def test_tokens_take_as_many_times_as_long():
    # Sides that divide the sizes: x tokens take x r, for odd x as for even ones.
    tokens = np.arange(1, 65)
    array = array_of(efficiency=0.7)
    rate_s = 35 * 48 / 30 / (2.3e8 * 0.7)
    np.testing.assert_allclose(unit_checks.product_time(array, tokens, 35, 48, 16.0, 0.0), tokens * rate_s, rtol=1e-5)
    # Relaxed, whole numbers of tokens take no less.
    np.testing.assert_allclose(unit_checks.product_time(array, tokens, 35, 48, 16.0, 0.4), tokens * rate_s, rtol=1e-5)
    # Elsewhere they take longer, by the same factor for each.
    seconds = unit_checks.product_time(array, tokens, 36, 49, 16.0, 0.0)
    np.testing.assert_allclose(seconds / tokens, seconds[0], rtol=1e-5)
    assert float(seconds[0]) > 1.1 * rate_s * (36 * 49) / (35 * 48)
