"""The host's time for a product: by hand, in a whole product, and never less time for more of anything."""

import jax.numpy as jnp
import pytest

from hwmodels.compute.gpu import host_wait


def test_by_hand():
    # Few rows: the host takes 50 µs, the GPU 30, joined (50^4 + 30^4)^(1/4).
    seconds = host_wait(1.0, host_s=50e-6, host_rows_s=20e-6, product_s=30e-6)
    assert float(seconds) == pytest.approx(((50.0**4 + 30.0**4) ** 0.25 - 30.0) * 1e-6, rel=1e-4)
    # At 24 rows half of what many rows take longer, far beyond all of it.
    for rows, host in ((24.0, 60.0), (1e9, 70.0)):
        assert float(host_wait(rows, host_s=50e-6, host_rows_s=20e-6, product_s=0.0)) == pytest.approx(host * 1e-6)
    # A graph never waits, and a long product hides the host.
    assert float(host_wait(7.0, host_s=0.0, host_rows_s=0.0, product_s=30e-6)) == 0.0
    assert float(host_wait(1.0, host_s=50e-6, host_rows_s=0.0, product_s=1e-3)) < 1e-8


@pytest.mark.parametrize("rows", [3.0, 30.0])
def test_gradient(rows, check_gradient):
    timed = lambda p: host_wait(p[0], host_s=p[1], host_rows_s=p[2], product_s=p[3])
    check_gradient(timed, tuple(jnp.float32(value) for value in (rows, 5e-5, 2e-5, 4e-5)), step=1e-6)
