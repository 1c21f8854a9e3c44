from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.formats import mx_truncated as mx
from jaxspec.formats.patterns import BFLOAT16, from_bits, to_bits

PATTERNS = np.arange(1 << 16, dtype=np.uint16)

# Compiling is what these tests spend their time on.
QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
jit = partial(jax.jit, compiler_options=QUICKLY)

encode = jit(mx.encode, static_argnames=("block_size", "mantissa_bits", "rounding"))
decode = jit(mx.decode)
split = jit(mx.split)
join = jit(mx.join)
num_bits = jit(mx.num_bits, static_argnames=("block_size", "mantissa_bits"))


def stored(values):
    return jnp.asarray(np.asarray(values, np.float32).astype(ml_dtypes.bfloat16))


def bits_of(x):
    return np.asarray(x).view(np.uint16)


def wild(seed, rows=12, columns=75):
    """Rows of any scale that bfloat16 holds, subnormal ones too, and zeros of both signs within a row."""
    rng = np.random.default_rng(seed)
    exponent = rng.integers(-134, 127, (rows, 1))
    exponent[:2] = [[-122], [-128]]
    exponent = exponent - rng.geometric(0.2, (rows, columns))
    values = np.ldexp(rng.uniform(1, 2, (rows, columns)), exponent) * rng.choice(
        [-1, 1, 1, -1, 0, -0.0], (rows, columns)
    )
    return values.astype(np.float32).astype(ml_dtypes.bfloat16)


def by_fractions(row, block_size, mantissa_bits, rounding):
    """What a row of finite values becomes, from the definition of the format and exact arithmetic alone."""
    result = []
    for start in range(0, len(row), block_size):
        block = [Fraction(float(value)) for value in row[start : start + block_size]]
        # Exponent of a magnitude, that of subnormal values being -126; a block of zeros may have any.
        exponents = [-126]
        for value in block:
            exponent = -126
            while abs(value) >= Fraction(2) ** (exponent + 1):
                exponent += 1
            exponents.append(exponent)
        step = Fraction(2) ** (max(exponents) - (mantissa_bits - 1))
        for value in block:
            steps = abs(value) / step
            steps = steps.numerator // steps.denominator if rounding == "toward_zero" else round(steps)
            steps = min(steps, 2**mantissa_bits - 1)
            result.append(float(steps * step * (1 if value >= 0 else -1)))
    return result


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


@pytest.mark.parametrize("rounding", ["toward_zero", "nearest_even"])
@pytest.mark.parametrize(("block_size", "mantissa_bits"), [(32, 8), (5, 4), (7, 11), (3, 1)])
def test_values_are_those_of_exact_arithmetic(block_size, mantissa_bits, rounding):
    x = wild(block_size + mantissa_bits)
    settings = dict(block_size=block_size, mantissa_bits=mantissa_bits, rounding=rounding)
    result = np.asarray(decode(encode(jnp.asarray(x), **settings)))
    expected = np.array([by_fractions(row, **settings) for row in x])
    np.testing.assert_array_equal(result.astype(np.float64), expected)
    np.testing.assert_array_equal(bits_of(result) >> 15, bits_of(x) >> 15)
    subnormal = (expected != 0) & (np.abs(expected) < 2.0**-126)
    assert np.any(subnormal) or mantissa_bits == 1


@pytest.mark.parametrize("rounding", ["toward_zero", "nearest_even"])
def test_all_patterns_alone_are_exact(rounding):
    for mantissa_bits in (8, 13):
        encoded = encode(
            jnp.asarray(PATTERNS.view(ml_dtypes.bfloat16))[:, None], mantissa_bits=mantissa_bits, rounding=rounding
        )
        assert encoded.elements.shape == (1 << 16, 1, 32)
        np.testing.assert_array_equal(bits_of(decode(encoded))[:, 0], PATTERNS)


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


@pytest.mark.parametrize(("mantissa_bits", "cut_bits"), [(8, 1), (8, 4), (8, 7), (11, 5), (5, 3)])
def test_the_draft_is_what_fewer_mantissa_bits_would_have_stored(mantissa_bits, cut_bits):
    x = jnp.asarray(wild(3))
    draft = decode(split(encode(x, mantissa_bits=mantissa_bits), cut_bits).speculation)
    narrow = decode(encode(x, mantissa_bits=mantissa_bits - cut_bits))
    np.testing.assert_array_equal(bits_of(draft), bits_of(narrow))


def test_cuts_may_differ_by_row_and_be_traced():
    x = jnp.asarray(wild(4, rows=3))
    encoded = encode(x)
    cut = np.array([2, 0, 7])
    together = split(encoded, jnp.asarray(cut)[:, None, None])
    by_row = jax.vmap(split)(encoded, jnp.asarray(cut))
    jax.tree.map(np.testing.assert_array_equal, together, by_row)
    for row in range(3):
        alone = split(encode(x[row]), int(cut[row]))
        np.testing.assert_array_equal(together.speculation.elements[row], alone.speculation.elements)
        np.testing.assert_array_equal(decode(together.speculation)[row], decode(alone.speculation))


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


def test_zeros_and_subnormal_blocks():
    bits = np.array([0, 0x8000, 0, 0x0001, 0x8043, 0x0000, 0x0080, 0x807F, 0x0001], np.uint16)
    encoded = encode(from_bits(jnp.asarray(bits), BFLOAT16), block_size=3)
    assert encoded.exponent.tolist() == [0, 0, 1]
    np.testing.assert_array_equal(bits_of(decode(encoded)), bits)


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
    kept = jnp.arange(37) < jnp.array([[20], [37], [0]])
    bits = num_bits(kept, 2, block_size=16, mantissa_bits=6)
    draft = [37 + 16 + 160, 24 + 240, 37]
    assert bits.draft.tolist() == draft
    assert bits.target.tolist() == [draft[0] + 64 + 272, draft[1] + 96, 37 + 592]


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


def test_expected_bits_by_hand_and_of_long_rows():
    # 60 % kept, 4 of 8 mantissa bits cut: draft 1 + 0.6 (1 + 4 + 8/32) = 4.15; target + 0.6 x 4 + 0.4 x 16 = 12.95.
    expected = mx.expected_bits(0.6, 4.0)
    np.testing.assert_allclose([expected.draft, expected.target], [4.15, 12.95])
    kept = jnp.arange(100_003) % 5 < 3
    bits = num_bits(kept, 4)
    np.testing.assert_allclose([bits.draft / 100_003, bits.target / 100_003], [4.15, 12.95], rtol=1e-3)
    dense = mx.expected_bits(1.0, 0.0, bitmap=0.0, block_size=20, mantissa_bits=5)
    assert dense.draft == dense.target == 6.4


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


@settings(max_examples=8)
@given(
    shape=st.sampled_from([(0,), (1,), (33,), (3, 0), (0, 5), (2, 1, 10)]),
    block_size=st.sampled_from([1, 3, 32]),
    mantissa_bits=st.sampled_from([1, 8, 15]),
)
def test_any_shape(shape, block_size, mantissa_bits):
    rng = np.random.default_rng(len(shape))
    x, kept = stored(rng.standard_normal(shape)), jnp.asarray(rng.random(shape) < 0.5)
    encoded = encode(x, kept, block_size=block_size, mantissa_bits=mantissa_bits)
    assert encoded.exponent.shape == (*shape[:-1], -(-shape[-1] // block_size))
    assert encoded.elements.shape == (*encoded.exponent.shape, block_size)
    values = decode(encoded, kept)
    assert values.shape == shape
    np.testing.assert_array_equal(np.asarray(to_bits(values))[~np.asarray(kept)], 0)
    assert num_bits(kept, 1, block_size=block_size, mantissa_bits=mantissa_bits).draft.shape == shape[:-1]


def test_what_cannot_be_is_refused():
    x = stored([1.0, 2.0])
    with pytest.raises(ValueError, match="only bfloat16 is stored with shared exponents"):
        mx.encode(x.astype(jnp.float32))
    with pytest.raises(ValueError, match="a scalar has no axis"):
        mx.encode(x[0])
    with pytest.raises(ValueError, match="block_size is 0;"):
        mx.encode(x, block_size=0)
    for mantissa_bits in (0, 16):
        with pytest.raises(ValueError, match=f"mantissa_bits is {mantissa_bits}; an element holds 1 to 15"):
            mx.encode(x, mantissa_bits=mantissa_bits)
        with pytest.raises(ValueError, match=f"mantissa_bits is {mantissa_bits};"):
            mx.num_bits(jnp.ones(3, bool), 0, mantissa_bits=mantissa_bits)
    with pytest.raises(ValueError, match="rounding is 'up'"):
        mx.encode(x, rounding="up")
    with pytest.raises(ValueError, match="bitmap of 3 columns came with rows of 2"):
        mx.decode(encode(x), jnp.ones(3, bool))
    for cut_bits in (-1, 9, np.array([0, 9])):
        with pytest.raises(ValueError, match="0 to 8 of the mantissa may be cut"):
            mx.split(encode(x), cut_bits)


def test_rows_whose_bits_int32_does_not_count_are_refused():
    count = lambda columns: jax.eval_shape(lambda kept: mx.num_bits(kept, 3), jax.ShapeDtypeStruct((2, columns), bool))
    # One bit of bitmap, at most 16 of a value and a quarter of a shared exponent: 17.25 bits a value.
    assert count(int(2**31 / 17.25) - 32).draft.dtype == jnp.int32
    with pytest.raises(ValueError, match="split the rows"):
        count(int(2**31 / 17.25) + 32)
