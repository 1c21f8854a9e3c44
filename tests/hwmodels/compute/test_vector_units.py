import jax.numpy as jnp
import pytest
from unit_checks import compiled

from hwmodels.compute.vector_array import GatheredTable, VectorUnits, dequantization_time, softmax_time
from hwmodels.compute.weight_layouts import CoalescedGroups

VECTOR = VectorUnits(
    units=3.0,
    packets_per_s=7e8,
    register_scores=10.0,
    score_packets=4.0,
    row_packets=23.0,
    layout=CoalescedGroups(register_bits=80.0, register_packets=9.0),
    exponential=GatheredTable(gather_packets=31.0, table_bytes=100.0),
)
dequantize, softmax = compiled(dequantization_time), compiled(softmax_time)


@pytest.mark.parametrize(("weight_bits", "packets"), [(4.5, 9), (5.6, 18), (8.5, 18), (12.4, 27), (15.9, 36)])
def test_dequantization_by_hand(weight_bits, packets):
    # 300 weights of 4 bits are 15 registers, on three units 5 in a row.
    seconds = dequantize(VECTOR, 300, weight_bits=weight_bits)
    assert float(seconds) == pytest.approx(5 * packets / 7e8)


def rows_one_by_one(rows, columns):
    """Packets: a thread hands out rows, each unit takes the next one as soon as it is free."""
    handed_out, free = 0, [0] * 3
    for _ in range(rows):
        handed_out += 23
        first = min(range(3), key=lambda unit: free[unit])
        free[first] += -(-columns // 10) * 35
    return handed_out + max(free)


def test_softmax_row_by_row():
    for rows in (1, 2, 3, 4, 7, 30):
        for columns in (1, 10, 11, 99, 100):
            expected = rows_one_by_one(rows, columns)
            assert float(softmax(VECTOR, rows, columns)) == pytest.approx(expected / 7e8), (rows, columns)


def test_gradient(check_gradient):
    def total(x):
        vector, weights, bits, rows, columns = x
        temperatures = jnp.array([0.0, 0.2, 0.9])
        seconds = dequantization_time(vector, weights, weight_bits=bits, temperature=temperatures)
        return jnp.sum((seconds + softmax_time(vector, rows, columns, temperature=temperatures)) / 1e-7)

    check_gradient(total, (VECTOR, 313.0, 6.3, 10.7, 107.0))
