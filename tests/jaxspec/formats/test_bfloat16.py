import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jaxspec.formats.bfloat16 import (
    Fields,
    from_bits,
    high_part,
    low_part,
    merge_fields,
    split_fields,
    to_bits,
    truncate,
)

PATTERNS = np.arange(1 << 16, dtype=np.uint16)
VALUES = PATTERNS.view(ml_dtypes.bfloat16)
FINITE = np.isfinite(VALUES.astype(np.float32))


def test_patterns_survive_the_way_to_values_and_back():
    np.testing.assert_array_equal(to_bits(from_bits(jnp.asarray(PATTERNS))), PATTERNS)
    np.testing.assert_array_equal(to_bits(jnp.asarray(VALUES)), PATTERNS)


def test_fields_of_all_patterns():
    sign, exponent, mantissa = (np.asarray(field).astype(int) for field in split_fields(jnp.asarray(VALUES)))
    assert set(sign) == {0, 1}
    assert (exponent.max(), mantissa.max()) == (255, 127)
    # The value by definition: subnormals have exponent 1 and no leading one.
    magnitude = (mantissa / 128 + (exponent > 0)) * 2.0 ** (np.maximum(exponent, 1) - 127)
    value = np.where(sign == 1, -magnitude, magnitude)
    np.testing.assert_array_equal(value[FINITE], VALUES[FINITE].astype(np.float64))
    np.testing.assert_array_equal(np.signbit(value[FINITE]), np.signbit(VALUES[FINITE]))


def test_merging_undoes_splitting_bit_for_bit():
    np.testing.assert_array_equal(to_bits(merge_fields(split_fields(jnp.asarray(VALUES)))), PATTERNS)


def test_fields_by_hand():
    # -1.40625 = -(1 + 13/32) = -(1 + 52/128), exponent 0 + 127.
    assert split_fields(jnp.asarray(-1.40625, jnp.bfloat16)) == Fields(jnp.uint8(1), jnp.uint8(127), jnp.uint8(52))


@pytest.mark.parametrize("cut_bits", range(8))
def test_parts_of_all_patterns_are_disjoint_and_rebuild_the_pattern(cut_bits):
    high, low = (np.asarray(part(jnp.asarray(PATTERNS), cut_bits)) for part in (high_part, low_part))
    np.testing.assert_array_equal(high | low, PATTERNS)
    np.testing.assert_array_equal(high & low, 0)
    assert np.all(low < 1 << cut_bits)


@pytest.mark.parametrize("cut_bits", range(8))
def test_truncation_of_all_patterns_is_integer_division(cut_bits):
    expected = PATTERNS.astype(np.int64) // 2**cut_bits * 2**cut_bits
    np.testing.assert_array_equal(to_bits(truncate(jnp.asarray(VALUES), cut_bits)), expected)


@pytest.mark.parametrize("cut_bits", range(8))
def test_truncation_of_all_finite_values_is_rounding_toward_zero(cut_bits):
    value = VALUES[FINITE].astype(np.float64)
    # Distance of neighbouring values with 7 - cut bits; frexp's exponent is that of a mantissa in [1/2, 1).
    spacing = 2.0 ** (np.maximum(np.frexp(value)[1] - 1, -126) - 7 + cut_bits)
    result = np.asarray(truncate(jnp.asarray(VALUES[FINITE]), cut_bits)).astype(np.float64)
    np.testing.assert_array_equal(result, np.trunc(value / spacing) * spacing)
    np.testing.assert_array_equal(np.signbit(result), np.signbit(value))


def test_truncation_by_hand():
    # 1.1015625 = 1 + 13/128, mantissa 0001101; two bits cut leave 0001100 = 12/128.
    assert float(truncate(jnp.asarray(1.1015625, jnp.bfloat16), 2)) == 1.09375


def test_cut_bits_may_differ_by_row_and_be_traced():
    rows = np.stack([PATTERNS, PATTERNS[::-1], np.roll(PATTERNS, 5)])
    cut = np.array([[3], [0], [7]])
    traced = jax.jit(high_part)(jnp.asarray(rows), jnp.asarray(cut))
    np.testing.assert_array_equal(traced, rows >> cut.astype(np.uint16) << cut.astype(np.uint16))
    by_row = jax.vmap(high_part)(jnp.asarray(rows), jnp.asarray(cut[:, 0]))
    np.testing.assert_array_equal(by_row, traced)
