import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels.compute.weight_layouts import share_narrower, weight_slices

slices, share = jax.jit(weight_slices), jax.jit(share_narrower)


@pytest.mark.parametrize(
    ("weight_bits", "slice_bits", "expected"),
    # A bit may be metadata: 4.5 and 5 are 4-bit values, 5.11 is not; 8.5 are two 4-bit slices, 13.9 are 12.9 bits: four.
    [
        (0.4, 4, 1),
        (4.0, 4, 1),
        (4.5, 4, 1),
        (5.0, 4, 1),
        (5.11, 4, 2),
        (8.5, 4, 2),
        (13.9, 4, 4),
        (16.0, 4, 4),
        (16, 8, 2),
    ],
)
def test_slices_by_hand(weight_bits, slice_bits, expected):
    assert float(slices(weight_bits, slice_bits)) == expected


def test_share_by_hand():
    np.testing.assert_array_equal(share(np.array([15.9, 16.0, 16.1]), 16.0), [1, 0, 0])
    # Half way through a limit of 16 - 0.8: 1/2; a quarter above its lower end, position 3/4: 9/16 * 3/2 = 27/32.
    np.testing.assert_allclose(share(np.array([15.2, 15.6, 15.4, 16.0]), 16.0, 0.8), [1, 0.5, 27 / 32, 0], atol=1e-5)


@pytest.mark.device_matrix
def test_gradient(check_gradient):
    def total(x):
        bits, step, limit, temperature = x
        counts = weight_slices(bits + jnp.array([0.0, 0.9, 7.3]), step, metadata_bits=0.7, temperature=temperature)
        return jnp.sum(counts) + share_narrower(bits, limit, temperature)

    check_gradient(total, [8.3, 3.6, 8.7, 0.6])
