import jax
import jax.numpy as jnp
import pytest
from systolic_samples import SOME_KINDS, array_of

from hwmodels.compute.systolic.unit import gemm_cost

pytestmark = pytest.mark.device_matrix

RATES = ("frequency_hz", "bandwidth_bytes_per_s")
jitted_cost = jax.jit(gemm_cost)


def scale(array, names, factor):
    return jax.tree_util.tree_map_with_path(lambda path, leaf: leaf * (factor if path[-1].name in names else 1), array)


def test_by_hand():
    # A 5 x 7 by 7 x 4 product on 3 x 2 elements: 66 cycles at 0.7 GHz; 70 inputs of 2 bytes at 31 GB/s, 28 weights of
    # 11 bits at 53 GB/s, 100 sums of 4 bytes at 29 GB/s.
    bytes_moved = {"input_buffer": 140 / 3.1e10, "weight_buffer": 38.5 / 5.3e10, "output_buffer": 400 / 2.9e10}
    # 140 multiplications of 0.9 pJ; 70 accesses of 2 bytes, 1.1 pJ each; 38.5 / 4 of 2.3 pJ; 50 of 8 bytes, 3.7 pJ each.
    joules = 140 * 0.9e-12 + 70 * 1.1e-12 + 9.625 * 2.3e-12 + 50 * 3.7e-12
    array = array_of(3, 2)
    for name, seconds in ({"frequency_hz": 66 / 7e8} | bytes_moved).items():
        slowest = scale(array, RATES, 1e6).replace(**{name: getattr(array, name)})
        cost = jitted_cost(slowest, 5, 7, 4, weight_bits=11)
        assert float(cost.total_s) == pytest.approx(seconds, rel=1e-6), name
        assert float(cost.total_j) == pytest.approx(joules, rel=1e-6), name


@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_twice_the_rates_halve_the_time_and_change_no_energy(temperature):
    array = array_of(13, 7, "ws", "pipelined")
    one, two = (jitted_cost(a, 29, 50, 41, temperature=temperature) for a in (array, scale(array, RATES, 2.0)))
    assert float(two.total_s) == pytest.approx(float(one.total_s) / 2, rel=1e-6)
    assert float(two.total_j) == float(one.total_j)


@pytest.mark.parametrize("kind", SOME_KINDS)
def test_gradient(kind, check_gradient):
    def logarithm(x):
        array, (m, k, n), bits = x
        cost = gemm_cost(array, m, k, n, weight_bits=bits, temperature=jnp.array([0.0, 0.2]))
        return jnp.sum(jnp.log(cost.total_s) + jnp.log(cost.total_j))

    check_gradient(logarithm, (array_of(13.3, 7.7, *kind), [29.1, 50.2, 40.9], 11.4))
