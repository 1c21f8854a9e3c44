"""Shared exponents of kept values: bitmap, bits, any shape, what is refused."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from mx_truncated_samples import bits_of, by_fractions, decode, encode, wild

from jaxspec.formats import mx_truncated as mx

num_bits = jax.jit(mx.num_bits, static_argnames=("block_size", "mantissa_bits"))


@pytest.mark.scheme_matrix(1)
@pytest.mark.parametrize(("block_size", "mantissa_bits"), [(32, 8), (4, 6)])
def test_only_kept_values_share_exponents_and_the_bitmap_puts_them_back(block_size, mantissa_bits):
    x = wild(5, rows=9)
    rng = np.random.default_rng(6)
    kept = rng.random(x.shape) < np.linspace(0, 1, 9)[:, None]
    assert not kept[0].any()
    assert kept[-1].all()
    encoded = encode(jnp.asarray(x), jnp.asarray(kept), block_size=block_size, mantissa_bits=mantissa_bits)
    result = np.asarray(decode(encoded, jnp.asarray(kept)))
    for row, mask, values in zip(x, kept, result):
        expected = np.zeros(row.size)
        expected[mask] = by_fractions(row[mask], block_size, mantissa_bits, "toward_zero")
        np.testing.assert_array_equal(values.astype(np.float64), expected)
        np.testing.assert_array_equal(bits_of(values)[~mask], 0)
    # Large values that are pruned must not take bits from the kept ones.
    peak = np.where(kept, x, ml_dtypes.bfloat16(3e38))
    again = encode(jnp.asarray(peak), jnp.asarray(kept), block_size=block_size, mantissa_bits=mantissa_bits)
    jax.tree.map(np.testing.assert_array_equal, again, encoded)


def test_bits_by_hand():
    # 37 columns of which 20, all and none are kept; blocks of 16, 6 mantissa bits, 2 of them cut. 20 fill two blocks: bitmap
    # 37, exponents 2 x 8, 32 elements of 1 + 4 bits; then 32 x 2 cut bits and 17 x 16. All fill three blocks, without bitmap.
    kept = jnp.arange(37)[None] < jnp.array([[20], [37], [0]])
    bits = num_bits(kept, 2, block_size=16, mantissa_bits=6)
    draft = [37 + 16 + 160, 24 + 240, 37]
    assert bits.draft.tolist() == draft
    assert bits.target.tolist() == [draft[0] + 64 + 272, draft[1] + 96, 37 + 592]


@pytest.mark.scheme_matrix
def test_bits_are_those_of_what_is_stored():
    kept = jnp.asarray(np.random.default_rng(7).random((4, 75)) < 0.7).at[2].set(True)
    encoded = encode(jnp.asarray(wild(8, rows=4)), kept, block_size=5)
    bits = num_bits(kept, jnp.array([3, 0, 1, 8]), block_size=5)
    for row, cut in enumerate((3, 0, 1, 8)):
        blocks = -(-int(kept[row].sum()) // 5)
        # Behind the kept values there is nothing.
        assert not np.any(encoded.elements[row, blocks:])
        bitmap = 0 if row == 2 else 75
        assert bits.draft[row] == bitmap + blocks * (8 + 5 * (9 - cut))
        assert bits.target[row] - bits.draft[row] == blocks * 5 * cut + 16 * (75 - int(kept[row].sum()))


def test_gradient_of_expected_bits(check_gradient):
    def scalar(x):
        bits = mx.expected_bits(x["share"], x["cut"], bitmap=x["bitmap"], block_size=24, mantissa_bits=9)
        return jnp.sum(bits.draft * jnp.array([1.0, 0.4, 2.0])) - 0.7 * jnp.sum(bits.target)

    ends = {
        "share": jnp.array([0.0, 0.55, 1.0]),
        "cut": jnp.array([0.0, 3.3, 9.0]),
        "bitmap": jnp.array([0.0, 0.5, 1.0]),
    }
    check_gradient(scalar, ends, side=jax.tree.map(lambda x: jnp.array([1, 0, -1]), ends))
