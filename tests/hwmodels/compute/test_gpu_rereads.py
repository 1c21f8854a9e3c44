"""Operands that neither fit into the cache: by hand, off, in whole products, and never less time for more of anything."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels.catalog.calibrated import calibrated_gpu
from hwmodels.compute.gpu import feeding_time, gemm_time, while_fed
from hwmodels.compute.gpu_experts import GemmCoefficients

#: Shipped formats with the term.
WITH = [("vllm", "fp8"), ("sglang", "fp8"), ("sglang", "fp8_block")]
NUMBERS = dict.fromkeys(GemmCoefficients.__dataclass_fields__, 0.0) | {"activation_bytes": 1.0}


def feeding(m, k, n, bits=8.0, cost=0.7, cache=100e6, bandwidth=2e12):
    c = GemmCoefficients(**(NUMBERS | {"reread_cost": cost, "cache_bytes": cache}))
    return feeding_time(c, m, k, n, weight_bits=bits, bandwidth_bytes_per_s=bandwidth)


def test_by_hand():
    # 100 MB of activations are twice half of the cache, 50 MB of weights just that: 16/17 and 1/2 of them are missed.
    expected = 0.7 * (16 / 17) * 0.5 * (100e6 * 5000 + 50e6 * 10000) / 256 / 2e12
    assert float(feeding(10000.0, 10000.0, 5000.0)) == pytest.approx(expected, rel=1e-5)
    # 4 bits halve the weights: r = 1/2 of them, and half of their reads.
    expected = 0.7 * (16 / 17) * (1 / 17) * (100e6 * 5000 + 25e6 * 10000) / 256 / 2e12
    assert float(feeding(10000.0, 10000.0, 5000.0, bits=4.0)) == pytest.approx(expected, rel=1e-5)
    # Without a cache all is missed; without a cost nothing takes time.
    assert float(feeding(256.0, 100.0, 512.0, cache=0.0)) == pytest.approx(0.7 * 100 * (512 + 512) / 2e12, rel=1e-5)
    assert float(feeding(10000.0, 10000.0, 5000.0, cost=0.0)) == 0.0
    assert float(while_fed(3e-3, 2e-3)) == pytest.approx((3.0**4 + 2.0**4) ** 0.25 * 1e-3, rel=1e-5)


@pytest.mark.device_matrix(2)
@pytest.mark.parametrize(("engine", "kind"), WITH)
def test_large_products_of_the_b200_wait_for_memory(engine, kind):
    unit = calibrated_gpu("b200-sxm", engine, kind)
    never = dataclasses.replace(unit, coefficients=dataclasses.replace(unit.coefficients, reread_cost=np.zeros(2)))
    ratio = lambda *sizes: float(gemm_time(unit, *sizes, weight_bits=8.0) / gemm_time(never, *sizes, weight_bits=8.0))
    # 134 MB by 419 MB; one operand of 8 MB, whatever the other one; a product of decoding.
    assert ratio(16384.0, 8192.0, 51200.0) > 1.1
    assert ratio(1024.0, 8192.0, 51200.0) < 1.001
    assert ratio(65536.0, 8192.0, 1024.0) < 1.001
    assert ratio(64.0, 4096.0, 28672.0) == 1.0
    # Of 16 bits nothing is known to be read again.
    assert float(unit.coefficients.reread_cost[1]) == 0.0
    assert float(unit.coefficients.cache_bytes[0]) == pytest.approx(126e6)


def test_gradient(check_gradient):
    """Below and above what counts of the cache."""
    for m, n in ((2000.0, 9000.0), (30000.0, 20000.0)):
        of_all = lambda p: (
            feeding(p[0], p[1], p[2], bits=p[3], cost=p[4], cache=p[5] * 1e8, bandwidth=p[6] * 1e12) * 1e3
        )
        check_gradient(of_all, tuple(jnp.float32(value) for value in (m, 8000.0, n, 8.0, 0.7, 1.0, 2.0)))
