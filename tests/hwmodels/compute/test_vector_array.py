import itertools

import jax
import numpy as np
import pytest

from hwmodels.compute.vector_array import SPREADS, assignment_cycles
from hwmodels.compute.vector_mapping import BufferedArray, weight_load_time

pytestmark = pytest.mark.device_matrix

ARRAY = BufferedArray(
    pe_rows=3.0,
    pe_columns=5.0,
    vector_macs=2.0,
    vector_width=7.0,
    frequency_hz=1.3e9,
    weight_buffer_bytes=900.0,
    input_buffer_bytes=300.0,
    accumulator_buffer_bytes=200.0,
    global_buffer_bytes=1100.0,
    weight_lanes=11.0,
)

cycles = jax.jit(assignment_cycles)


def test_by_hand():
    # 4 x 30 by 30 x 9. Rows along k, columns along n: ceil(30 / 21) = 2, ceil(9 / 10) = 1, 4 tokens: 8 cycles.
    counts = dict(zip(SPREADS, np.asarray(cycles(ARRAY, 4, 30, 9)), strict=True))
    assert counts["k", "n"] == 8
    # Both along k: ceil(30 / 105) = 1, ceil(9 / 2) = 5: 20. Both along m: 1 * ceil(30 / 7) * 5 = 25.
    assert counts["k", "k"] == 20
    assert counts["m", "m"] == 25
    # Rows along n: ceil(9 / 6) = 2; columns along m: 1; k alone: 5. The other way: n 1, m 2, k 5.
    assert counts["n", "m"] == 10
    assert counts["m", "n"] == 10
    assert min(counts.values()) == 8
    assert float(ARRAY.product_time(4, 30, 9)) == pytest.approx(8 / 1.3e9)
    assert ARRAY.peak_flops_per_s == pytest.approx(2 * 15 * 14 * 1.3e9)
    # 270 weights through 11 lanes.
    assert float(weight_load_time(ARRAY, 30, 9)) == pytest.approx(270 / 11 / 1.3e9)


def schedule(rows, columns, m, k, n):
    """Every multiply-add is given to a multiplier and a cycle; how many cycles the busiest one needs."""
    along = {"m": 1, "k": 1, "n": 1}
    along[rows] *= 3
    along[columns] *= 5
    busy, done = {}, set()
    for i, j, c in itertools.product(range(m), range(k), range(n)):
        vector, lane = divmod(j, 7)
        column, mac = divmod(c, 2)
        pe = (i % along["m"], vector % along["k"], column % along["n"])
        cycle = (i // along["m"], vector // along["k"], column // along["n"])
        # No multiplier does two things at once.
        assert (pe, lane, mac, cycle) not in done
        done.add((pe, lane, mac, cycle))
        busy.setdefault(pe, set()).add(cycle)
    assert len(done) == m * k * n
    return max(len(cycles) for cycles in busy.values())


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (2, 36, 5), (7, 22, 11), (5, 7, 31)])
def test_multiplier_by_multiplier(m, k, n):
    counts = np.asarray(cycles(ARRAY, m, k, n))
    assert list(counts) == [schedule(rows, columns, m, k, n) for rows, columns in SPREADS]
