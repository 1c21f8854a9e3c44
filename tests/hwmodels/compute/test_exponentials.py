import math

import numpy as np
import pytest

from hwmodels.compute.vector_array import taylor_degree


def largest_error(degree):
    """Of the Taylor polynomial of 2^f on [0, 1), by Horner's rule in double precision."""
    f, total = np.linspace(0.0, 1.0, 4001, endpoint=False), 0.0
    for power in range(degree, -1, -1):
        total = total * f + math.log(2) ** power / math.factorial(power)
    return np.max(np.abs(total - 2**f))


@pytest.mark.parametrize("bits", [1, 3, 8, 11, 24, 40])
def test_the_degree_is_the_least_that_is_exact_enough(bits):
    degree = taylor_degree(bits)
    # The omitted terms sum to little more than the first of them.
    assert largest_error(degree) < 1.5 * 2.0**-bits
    assert degree == 0 or largest_error(degree - 1) > 2.0**-bits
