import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from mx_truncated_samples import bits_of, by_fractions, decode, encode, stored, wild

from jaxspec.formats import mx_truncated as mx
from jaxspec.formats.patterns import BFLOAT16, from_bits

PATTERNS = np.arange(1 << 16, dtype=np.uint16)


split = jax.jit(mx.split)


join = jax.jit(mx.join)


def test_encoding_by_hand():
    # 1.5 = 1.100b x 2^0, -0.8125 = -1.101b x 2^-1, 0.171875 = 1.011b x 2^-3. They share the exponent 0, field 127.
    # Four mantissa bits: 1100; 1101 one place right, 0110|1; 1011 three places right, 0001|011. The sign is bit 4.
    x = stored([1.5, -0.8125, 0.171875])
    encoded = encode(x, block_size=3, mantissa_bits=4)
    assert encoded.exponent.tolist() == [127]
    assert encoded.elements.tolist() == [[0b01100, 0b10110, 0b00001]]
    # Back: no leading zeros, 1.1b; one, -1.1b x 2^-1; three, 1.0b x 2^-3.
    assert decode(encoded).tolist() == [1.5, -0.75, 0.125]
    # To nearest: 0110|1 is a tie, to the even 0110; 0001|011 is below one half. 1.75 x 2^-1 = 0111|0 stays, 0111|1 is a tie up.
    nearest = encode(stored([1.5, -0.8125, 0.171875, 0.9375]), mantissa_bits=4, rounding="nearest_even")
    assert nearest.elements[0, :4].tolist() == [0b01100, 0b10110, 0b00001, 0b01000]
    # Two bits cut: 11|00, 01|10, 00|01.
    parts = split(encoded, 2)
    assert parts.speculation.elements.tolist() == [[0b01100, 0b10100, 0b00000]]
    assert parts.verification.tolist() == [[0, 0b10, 0b01]]
    assert decode(parts.speculation).tolist() == [1.5, -0.5, 0.0]


@pytest.mark.scheme_matrix
@pytest.mark.parametrize("rounding", ["toward_zero", "nearest_even"])
@pytest.mark.parametrize(("block_size", "mantissa_bits"), [(5, 4), (7, 11)])
def test_values_are_those_of_exact_arithmetic(block_size, mantissa_bits, rounding):
    x = wild(block_size + mantissa_bits)
    settings = dict(block_size=block_size, mantissa_bits=mantissa_bits, rounding=rounding)
    result = np.asarray(decode(encode(jnp.asarray(x), **settings)))
    expected = np.array([by_fractions(row, **settings) for row in x])
    np.testing.assert_array_equal(result.astype(np.float64), expected)
    np.testing.assert_array_equal(bits_of(result) >> 15, bits_of(x) >> 15)
    subnormal = (expected != 0) & (np.abs(expected) < 2.0**-126)
    assert np.any(subnormal) or mantissa_bits == 1


def test_the_largest_of_a_block_are_exact_and_the_others_lose_a_bit_for_each_binade():
    x = wild(1, rows=50, columns=64).reshape(100, 32)
    field = (bits_of(x) >> 7 & 0xFF).astype(int)
    distance = np.maximum(field.max(axis=1, keepdims=True), 1) - np.maximum(field, 1)
    result, exact = (np.asarray(y).astype(np.float64) for y in (decode(encode(jnp.asarray(x))), x))
    np.testing.assert_array_equal(result[distance == 0], exact[distance == 0])
    assert set(distance.ravel()) > set(range(12))
    # Of the 8 bits, integers below 2^8 at the value's own exponent, `distance` fall off.
    unit = 2.0 ** (np.maximum(field, 1) - 127.0 - 7)
    kept = np.trunc(exact / unit / 2.0**distance) * 2.0**distance
    np.testing.assert_array_equal(result / unit, kept)


@pytest.mark.parametrize("rounding", ["toward_zero", "nearest_even"])
@pytest.mark.parametrize("mantissa_bits", [1, 5, 12])
def test_error_is_bounded_by_the_largest_of_the_block(mantissa_bits, rounding):
    x = wild(2, rows=60, columns=32)
    result = np.asarray(decode(encode(jnp.asarray(x), mantissa_bits=mantissa_bits, rounding=rounding)))
    exact = x.astype(np.float64)
    error = np.max(np.abs(result.astype(np.float64) - exact), axis=1)
    normal = np.max(np.abs(exact), axis=1) >= 2.0**-126
    bound = 2.0 ** (1 - mantissa_bits) * np.max(np.abs(exact), axis=1)
    assert np.all((error < bound)[normal])


@pytest.mark.parametrize("cut_bits", range(9))
def test_the_draft_is_a_part_of_the_target(cut_bits):
    bits = np.random.default_rng(cut_bits).permutation(PATTERNS).reshape(-1, 64)
    encoded = encode(jnp.asarray(bits.view(ml_dtypes.bfloat16)))
    parts = split(encoded, cut_bits)
    high, low = np.asarray(parts.speculation.elements), np.asarray(parts.verification)
    np.testing.assert_array_equal(high & low, 0)
    assert np.all(low < 1 << cut_bits)
    np.testing.assert_array_equal(high, encoded.elements >> cut_bits << cut_bits)
    assert jax.tree.structure(join(parts)) == jax.tree.structure(encoded)
    jax.tree.map(np.testing.assert_array_equal, join(parts), encoded)
    # No value of the draft is larger than the target's, and the signs are the same.
    draft, target = bits_of(decode(parts.speculation)), bits_of(decode(encoded))
    assert np.all(draft & 0x7FFF <= target & 0x7FFF)
    np.testing.assert_array_equal(draft >> 15, target >> 15)


@pytest.mark.scheme_matrix(3)
@pytest.mark.parametrize(("mantissa_bits", "cut_bits"), [(8, 1), (8, 4), (8, 7), (11, 5), (5, 3)])
def test_the_draft_is_what_fewer_mantissa_bits_would_have_stored(mantissa_bits, cut_bits):
    x = jnp.asarray(wild(3))
    draft = decode(split(encode(x, mantissa_bits=mantissa_bits), cut_bits).speculation)
    narrow = decode(encode(x, mantissa_bits=mantissa_bits - cut_bits))
    np.testing.assert_array_equal(bits_of(draft), bits_of(narrow))


@pytest.mark.scheme_matrix
def test_infinities_and_nans_pass_and_blur_their_block_alone():
    # Beside 2^128 a value keeps no bit below 2^121: 1.5 x 2^121 is 2^121, 2^120 is 0. The other block is as it was.
    bits = np.array([0x7F80, 0xFF81, 0x7FC5, *bits_of(stored([1.5 * 2.0**121, -(2.0**120), 3.0]))], np.uint16)
    bits = np.append(bits, bits_of(stored([1.5 * 2.0**121, -(2.0**120)])))
    result = bits_of(decode(encode(from_bits(jnp.asarray(bits), BFLOAT16), block_size=6)))
    blurred = bits_of(stored([2.0**121, -0.0, 0.0]))
    np.testing.assert_array_equal(result, [*bits[:3], *blurred, *bits[6:]])
    # Three bits of mantissa keep 1 and 2 of the stored ones: the first NaN's payload is lost, the second's is not.
    narrow = encode(from_bits(jnp.asarray(bits[:3]), BFLOAT16), mantissa_bits=3)
    assert bits_of(decode(narrow)).tolist() == [0x7F80, 0xFF80, 0x7FC0]
