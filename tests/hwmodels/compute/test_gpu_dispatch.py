import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels.compute.gpu import DISPATCHED_ROWS, GpuGemm, dispatched_tile
from hwmodels.compute.gpu_experts import GemmCoefficients, stack_widths
from hwmodels.compute.tile_counts import exact_ceiling
from hwmodels.numerics.folds import smooth_ceil_div

COEFFICIENTS = GemmCoefficients(
    launch_s=5e-6,
    split_s=0.0,
    depth_s=0.0,
    switch_s=0.0,
    row_cost=0.0,
    memory_efficiency=0.8,
    compute_efficiency=0.6,
    operand_cost=0.0,
    wave_rounding=1.0,
    sag_exponent=0.0,
    prologue_elements=0.0,
    pass_cost=2.0,
    pass_elements=300.0,
    activation_bytes=1.0,
    arithmetic_rate=2.0,
)
UNIT = GpuGemm(9e14, 3e12, 131.0, stack_widths([COEFFICIENTS]), weight_widths=(8.0,), dispatched_rows=((8.0, 256.0),))


def test_by_hand():
    # 64 rows up to 64, 128 up to 128, then the largest; tiles cover the padded rows.
    rows, tiles = dispatched_tile(
        jnp.asarray([1.0, 64.0, 65.0, 128.0, 129.0, 256.0, 257.0, 700.0]), 256.0, exact_ceiling
    )
    np.testing.assert_array_equal(rows, [64, 64, 128, 128, 256, 256, 256, 256])
    np.testing.assert_array_equal(tiles, [1, 1, 1, 1, 1, 1, 2, 3])
    rows, tiles = dispatched_tile(jnp.asarray([17.0, 128.0, 129.0, 300.0]), 128.0, exact_ceiling)
    np.testing.assert_array_equal(rows, [64, 128, 128, 128])
    np.testing.assert_array_equal(tiles, [1, 1, 2, 3])
    # 300 x 5000 by 5000 x 1000: 2 tiles of rows by 8, 16 or 4 of columns, one wave, soft minimum over the three.
    each = np.array([2 * 256 * columns / 0.6 * 131 * 5000 / 1.8e15 for columns in (64.0, 128.0, 256.0)])
    expected = np.sum(each**-16.0) ** (-1 / 16)
    assert float(UNIT.product_time(300, 5000, 1000, weight_bits=8.0)) == pytest.approx(expected, rel=1e-5)
    further = 2.0 * 300 * (5000 + 300) * 2 / 3e12
    assert float(UNIT.launch_time(300, 5000, 1000, busy_s=1e-5, weight_bits=8.0)) == pytest.approx(
        5e-6 + further, rel=1e-5
    )


@pytest.mark.device_matrix(3)
@pytest.mark.parametrize("largest", DISPATCHED_ROWS)
@pytest.mark.parametrize("temperature", [0.0, 1e-3, 0.1, 1.0])
def test_more_rows_never_take_less(largest, temperature):
    m = jnp.linspace(0.5, 900.0, 4001)
    rows, tiles = dispatched_tile(m, largest, lambda one, other: smooth_ceil_div(one, other, temperature))
    for rising in (rows, rows * tiles):
        assert np.all(np.diff(rising) >= -1e-3)
    unit = dataclasses.replace(UNIT, dispatched_rows=((8.0, largest),))
    seconds = np.asarray(unit.product_time(m, 3001.0, 1700.0, weight_bits=8.0, temperature=temperature))
    assert np.all(np.diff(seconds) >= -1e-5 * seconds[1:])
