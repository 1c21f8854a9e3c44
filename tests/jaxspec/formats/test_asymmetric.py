"""Asymmetric integers: by hand, at the ends of ranges, and against NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.formats import asymmetric
from jaxspec.settings.compressions import IntegerKV

pytestmark = pytest.mark.scheme_matrix

RNG = np.random.default_rng(11)


def test_rows_by_hand():
    # From 3 to 18 in 15 steps of 1; halves go to the even code. The second row is constant, the third of zeros.
    rows = jnp.asarray([[3.0, 18.0, 4.5, 5.5, 7.2], [2.5] * 5, [0.0] * 5])
    found = asymmetric.encode(rows, 4)
    np.testing.assert_array_equal(found.codes, [[0, 15, 2, 2, 4], [0] * 5, [0] * 5])
    np.testing.assert_array_equal(asymmetric.decode(found), [[3, 18, 5, 5, 7], [2.5] * 5, [0] * 5])
    # Ends at half the range: -4 and 26 become the ends, and the step is 1.
    half = asymmetric.encode(jnp.asarray([[-4.0, 26.0, 0.0, 3.0]]), 4, share=0.5)
    np.testing.assert_array_equal(asymmetric.decode(half), [[-2, 13, 0, 3]])


@pytest.mark.parametrize("bits", [4, 8])
def test_every_element_is_within_half_a_step(bits):
    rows = (3.0 + RNG.standard_normal((2, 5, 48)) * RNG.lognormal(0, 1, (2, 5, 1))).astype(np.float32)
    found = asymmetric.encode(jnp.asarray(rows), bits)
    lowest = rows.min(axis=-1).astype(np.float16).astype(np.float32)
    step = ((rows.max(axis=-1) - lowest) / (2**bits - 1)).astype(np.float16).astype(np.float32)
    codes = np.clip(np.rint((rows - lowest[..., None]) / step[..., None]), 0, 2**bits - 1)
    np.testing.assert_array_equal(found.codes, codes)
    # Float16 rounds the ends by 1 in 2048, which whole ranges of codes add up.
    slack = np.abs(lowest) / 1024 + 2**bits * step / 1024
    assert np.all(np.abs(asymmetric.decode(found) - rows) <= (step / 2 + slack)[..., None])


def test_sizes_are_counted_with_both_numbers_of_a_row():
    for form, elements, expected in ((IntegerKV(4), 128, 4.25), (IntegerKV(8), 64, 8.5)):
        found = asymmetric.encode(jnp.ones((3, elements)), form.bits)
        assert (
            asymmetric.num_bits(found) / found.codes.size
            == asymmetric.bits_per_element(form.bits, elements)
            == expected
        )
