"""The further time of split sums: by hand, and that a larger product of any shipped fit never takes less time."""

import jax
import jax.numpy as jnp
import pytest

from hwmodels.compute.gpu import filling_time, gemm_time, split_time


def test_by_hand():
    # 48 columns for each of 100 multiprocessors, 2000 deep, at 2 ps each.
    filling = filling_time(2000.0, multiprocessors=100.0, weight_s=2e-12)
    assert float(filling) == pytest.approx(19.2e-6)
    # q = 2: 6 µs · 4/6 = 4 µs, next to a limit of 1.5396 · 19.2 = 29.6 µs, at half of the filling time.
    seconds = split_time(6e-6, 2048.0, busy_s=9.6e-6, filling_s=filling)
    assert float(seconds) == pytest.approx((4.0**-4 + 29.56**-4) ** -0.25 * 1e-6 / 1.25, rel=1e-4)
    # A second kernel that takes long is limited: 8 / 3^1.5 times the filling time.
    seconds = split_time(1.0, 2048.0, busy_s=0.0, filling_s=filling)
    assert float(seconds) == pytest.approx(8 / 3**1.5 * 19.2e-6, rel=1e-5)
    assert float(split_time(6e-6, 0.0, busy_s=0.0, filling_s=0.0)) == 0.0


@pytest.mark.parametrize("split_s", [2e-6, 1e-3])
def test_gradient(split_s, check_gradient):
    timed = lambda p: split_time(p[0], p[1], busy_s=p[2], filling_s=p[3])
    check_gradient(timed, (jnp.float32(split_s), 3000.0, 2e-5, 1.3e-5), step=1e-6)


timed = jax.jit(lambda unit, m, k, n, bits: gemm_time(unit, m, k, n, weight_bits=bits))
