import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jaxspec.formats import patterns
from jaxspec.formats.patterns import BFLOAT16, FLOAT16, FLOAT32, high_part, low_part, midpoint, to_bits, truncate

FORMATS = [BFLOAT16, FLOAT16, FLOAT32]
CUTS = [
    (f, cut) for f in FORMATS for cut in range(f.mantissa_bits + 1) if f is not FLOAT32 or cut in (0, 1, 5, 13, 16, 23)
]
by_name = lambda x: x.name if hasattr(x, "name") else None


def all_patterns(number_format):
    """All patterns of 16 bits; 65,536 of 32 bits at random, whose exponents are as often 0 as the others."""
    if number_format.total_bits == 16:
        return np.arange(1 << 16, dtype=np.uint16)
    rng = np.random.default_rng(0)
    bits = rng.integers(1 << 32, size=1 << 16, dtype=np.uint32)
    bits[:500] &= np.uint32(0x807FFFFF)
    bits[500:1000] |= np.uint32(0x7F800000)
    return bits


def finite_values(number_format):
    bits, top = all_patterns(number_format), 2**number_format.exponent_bits - 1
    finite = bits >> number_format.mantissa_bits & top < top
    return bits[finite].view(number_format.value_dtype)


@pytest.mark.parametrize(("number_format", "cut_bits"), CUTS, ids=by_name)
def test_parts_are_disjoint_and_rebuild_the_pattern(number_format, cut_bits):
    bits = all_patterns(number_format)
    high, low = (np.asarray(part(jnp.asarray(bits), cut_bits)) for part in (high_part, low_part))
    assert high.dtype == low.dtype == bits.dtype
    np.testing.assert_array_equal(high | low, bits)
    np.testing.assert_array_equal(high & low, 0)
    assert np.all(low < 1 << cut_bits)


@pytest.mark.parametrize(("number_format", "cut_bits"), CUTS, ids=by_name)
def test_the_midpoint_is_the_mean_of_the_ends(number_format, cut_bits):
    bits = all_patterns(number_format)
    high = np.asarray(high_part(jnp.asarray(bits), cut_bits))
    found = midpoint(high, cut_bits, number_format)
    assert found.dtype == bits.dtype
    exponents = bits >> number_format.mantissa_bits & (2**number_format.exponent_bits - 1)
    normal = (exponents > 0) & (exponents < 2**number_format.exponent_bits - 1)
    np.testing.assert_array_equal(found[~normal], high[~normal])
    value = lambda patterns: patterns[normal].view(number_format.value_dtype).astype(np.float64)
    if cut_bits:  # the end is the next truncated value, whose mantissa may carry into the exponent
        ends = (high[normal].astype(np.int64) + 2**cut_bits).astype(bits.dtype)
        finite = (
            ends >> number_format.mantissa_bits & (2**number_format.exponent_bits - 1)
            < 2**number_format.exponent_bits - 1
        )
        end = ends.view(number_format.value_dtype).astype(np.float64)
        np.testing.assert_array_equal(value(found)[finite], (value(high) + end)[finite] / 2)
    else:
        np.testing.assert_array_equal(found, bits)
    traced = jax.jit(lambda high, cut: midpoint(high, cut, number_format))(high, jnp.asarray(cut_bits, high.dtype))
    np.testing.assert_array_equal(traced, found)


@pytest.mark.parametrize("number_format", FORMATS, ids=by_name)
def test_cutting_more_reads_less_and_errs_more(number_format):
    values = finite_values(number_format)
    exact = np.abs(values.astype(np.float64))
    previous = exact
    for cut_bits in range(number_format.mantissa_bits + 1):
        size = np.abs(np.asarray(truncate(jnp.asarray(values), cut_bits)).astype(np.float64))
        assert np.all(size <= previous)
        normal = exact >= 2.0 ** (1 - number_format.bias)
        assert np.all((exact - size)[normal] <= exact[normal] * 2.0 ** (cut_bits - number_format.mantissa_bits))
        previous = size


def test_truncation_by_hand():
    # 1.1015625 = 1 + 13/128, mantissa 0001101; two bits cut leave 0001100 = 12/128.
    assert float(truncate(jnp.asarray(1.1015625, jnp.bfloat16), 2)) == 1.09375
    # -5.3125 = -2^2 (1 + 336/1024), 336 = 0101010000b; seven bits cut leave 0100000000 = 256/1024.
    assert float(truncate(jnp.asarray(-5.3125, jnp.float16), 7)) == -5.0
    # A NaN whose payload is cut is an infinity.
    nan = jnp.asarray(np.array([0xFF81, 0xFF90], np.uint16).view(ml_dtypes.bfloat16))
    assert to_bits(truncate(nan, 4)).tolist() == [0xFF80, 0xFF90]


@pytest.mark.scheme_matrix(2)
@pytest.mark.parametrize("number_format", FORMATS, ids=by_name)
def test_cut_bits_may_differ_by_row_and_be_traced(number_format):
    bits = all_patterns(number_format)
    rows = np.stack([bits, bits[::-1], np.roll(bits, 5)])
    cut = np.array([[3], [0], [number_format.mantissa_bits]])
    traced = jax.jit(high_part)(jnp.asarray(rows), jnp.asarray(cut))
    np.testing.assert_array_equal(traced, rows >> cut.astype(rows.dtype) << cut.astype(rows.dtype))
    by_row = jax.vmap(high_part)(jnp.asarray(rows), jnp.asarray(cut[:, 0]))
    np.testing.assert_array_equal(by_row, traced)
    np.testing.assert_array_equal(high_part(jnp.asarray(rows), cut, number_format=number_format), traced)


def test_bits_of_a_value():
    assert [patterns.num_bits(f, 4) for f in FORMATS] == [12, 12, 28]
    assert [patterns.num_bits(f, f.mantissa_bits) for f in FORMATS] == [9, 6, 9]
    np.testing.assert_array_equal(jax.jit(lambda c: patterns.num_bits(FLOAT16, c))(jnp.array([0, 7])), [16, 9])
    assert patterns.expected_bits(BFLOAT16, 2.5) == 13.5


def test_expected_bits_are_linear_between_whole_cuts(check_gradient):
    for number_format in FORMATS:
        whole = [patterns.num_bits(number_format, cut) for cut in (2, 3)]
        between = patterns.expected_bits(number_format, jnp.asarray(2.25))
        np.testing.assert_allclose(between, 0.75 * whole[0] + 0.25 * whole[1])
    weight = jnp.array([1.0, -2.0, 0.5])
    scalar = lambda cut: jnp.sum(weight * patterns.expected_bits(FLOAT16, cut))
    check_gradient(scalar, jnp.array([0.0, 3.3, 10.0]), side=jnp.array([1, 0, -1]))
