"""MX blocks at their limits: infinities, zeros, subnormal numbers, any shape; sizes."""

import jax.numpy as jnp
import numpy as np
import pytest
from mx_samples import SOME, decode, encode

from jaxspec.formats import mx

SUBNORMAL = np.float32(1e-45)


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -np.nan])
def test_a_nan_or_an_infinity_makes_its_block_nan_and_no_other(name, value):
    x = np.linspace(-3, 5, 21, dtype=np.float32)
    x[9] = value
    tensor = encode(jnp.asarray(x), mx.ELEMENTS[name], block_size=8)
    assert (np.asarray(tensor.scale) == 0xFF).tolist() == [False, True, False]
    assert not np.any(tensor.elements[1])
    assert np.isnan(decode(tensor)).tolist() == [False] * 8 + [True] * 8 + [False] * 5


@pytest.mark.parametrize("name", SOME)
def test_zeros(name):
    x = jnp.array([0.0, -0.0, 0.0, SUBNORMAL])
    tensor = encode(x, mx.ELEMENTS[name], block_size=3)
    assert tensor.scale.tolist() == [0, 0]
    sign = [0, 1 << (mx.ELEMENTS[name].total_bits - 1) if name != "INT8" else 0, 0]
    assert tensor.elements[0].tolist() == sign
    np.testing.assert_array_equal(np.signbit(decode(tensor)), [False, name != "INT8", False, False])


def test_bits_by_hand():
    # Rows of 37 fill two blocks of 32: 3 x 2 x (8 + 32 x 4); in blocks of 10 four: 3 x 4 x (8 + 10 x 6).
    assert mx.num_bits((3, 37), mx.E2M1) == 816
    assert mx.num_bits((3, 37), mx.E2M3, block_size=10) == 816
    assert mx.num_bits((70_000, 64_000), mx.INT8) == 70_000 * 64_000 * 8.25
