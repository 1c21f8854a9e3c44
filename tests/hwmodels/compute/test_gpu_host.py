"""The host's time for a product: by hand, in a whole product, and never less time for more of anything."""

import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels.catalog.calibrated import calibrated_gpu
from hwmodels.compute.gpu import gemm_time, host_wait


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


@pytest.mark.device_matrix(1)
@pytest.mark.parametrize("gpu", ["h100-sxm", "h200-sxm", "l40s"])
def test_a_graph_takes_a_fraction_for_a_small_product(gpu):
    """vLLM's blocks: as measured the host's time at least, whatever the format, with a graph the kernel's."""
    units = [calibrated_gpu(gpu, "vllm", "fp8_block", without_graph=without) for without in (True, False)]
    timed = lambda m, side, bits=8.0: [float(gemm_time(unit, m, side, side, weight_bits=bits)) for unit in units]
    host_s = float(units[0].coefficients.host_s[0])
    assert host_s <= timed(1.0, 4096.0)[0] < 1.05 * host_s
    assert host_s <= timed(1.0, 4096.0, 16.0)[0] < 1.05 * host_s
    assert timed(1.0, 4096.0)[1] < 0.5 * host_s
    many, replayed = timed(16384.0, 8192.0)
    assert many == pytest.approx(replayed, rel=1e-3)
    assert not np.any(calibrated_gpu(gpu, "vllm", "fp8", without_graph=True).coefficients.host_s)
