import jax.numpy as jnp
import numpy as np
import pytest
from unit_checks import compiled

from hwmodels.compute.vector_units import VectorUnits, dequantization_time, exponential_time

VECTOR = VectorUnits(
    units=3.0,
    packets_per_s=7e8,
    register_weights=20.0,
    lookup_packets=2.0,
    scale_packets=5.0,
    gather_elements=10.0,
    gather_packets=31.0,
)
dequantize, exponentials = compiled(dequantization_time), compiled(exponential_time)


@pytest.mark.parametrize(("weight_bits", "lookups"), [(4.5, 1), (5.6, 2), (8.5, 2), (12.4, 3), (15.9, 4)])
def test_dequantization_by_hand(weight_bits, lookups):
    # 300 weights are 15 registers, on three units 5 in a row, of 2 packets per lookup and 5 more each.
    seconds = dequantize(VECTOR, 300, weight_bits=weight_bits)
    assert float(seconds) == pytest.approx(5 * (2 * lookups + 5) / 7e8)


def gathers_one_by_one(count, units, elements):
    """Packets times gathers in a row: units take the next gather as soon as they are free."""
    free = [0] * units
    while count > 0:
        first = min(range(units), key=lambda unit: free[unit])
        free[first] += 1
        count -= elements
    return max(free)


def test_exponentials_one_by_one():
    for count in (*range(1, 70), 300, 301):
        expected = gathers_one_by_one(count, 3, 10) * 31 / 7e8
        assert float(exponentials(VECTOR, count)) == pytest.approx(expected), count


def test_exponentials_of_a_softmax():
    # 5 queries of 4096 keys: 20480 exponentials are 683 rounds of 30.
    assert float(exponentials(VECTOR, 5 * 4096)) == pytest.approx(683 * 31 / 7e8)


def test_relaxed_times_are_bounded_and_tend_to_the_exact_ones():
    count = np.arange(1, 200, dtype=np.float32)
    exact = exponentials(VECTOR, count)
    for temperature in (0.2, 1.0):
        relaxed = exponentials(VECTOR, count, temperature=temperature)
        assert np.all(relaxed <= exact)
        assert np.all(relaxed >= count * 31 / (30 * 7e8) * (1 - 1e-6))
        assert np.any(relaxed < exact * 0.95)
    np.testing.assert_allclose(exponentials(VECTOR, count, temperature=1e-6), exact, rtol=1e-3)


def test_faster_units_take_less_time():
    for name in ("units", "packets_per_s"):
        faster = VECTOR.replace(**{name: getattr(VECTOR, name) * 2})
        assert float(dequantize(faster, 77, weight_bits=4.5)) == pytest.approx(
            float(dequantize(VECTOR, 77, weight_bits=4.5)) / 2
        )
        assert float(exponentials(faster, 7777)) < 0.51 * float(exponentials(VECTOR, 7777))


def test_gradient(check_gradient):
    def total(x):
        vector, weights, bits, count = x
        temperatures = jnp.array([0.0, 0.2, 0.9])
        seconds = dequantization_time(vector, weights, weight_bits=bits, temperature=temperatures)
        return jnp.sum((seconds + exponential_time(vector, count, temperature=temperatures)) / 1e-7)

    check_gradient(total, (VECTOR, 313.0, 6.3, 107.0))
