import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.formats.patterns import BFLOAT16, FLOAT16, FLOAT32, INT8, format_of, from_bits, to_bits

FORMATS = [BFLOAT16, FLOAT16, FLOAT32, INT8]
by_name = lambda number_format: number_format.name


def patterns(number_format):
    """All patterns; of the 32-bit ones 65,536 at random, and around each place where the kind of value changes."""
    if number_format.total_bits < 32:
        return np.arange(1 << number_format.total_bits, dtype=number_format.bits_dtype)
    borders = np.array(
        [0, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FBFFFFF, 0x7FC00000], np.uint32
    )
    drawn = np.random.default_rng(0).integers(1 << 32, size=1 << 16, dtype=np.uint32)
    return np.concatenate([drawn, borders, borders | np.uint32(1 << 31)])


@pytest.mark.parametrize("number_format", FORMATS, ids=by_name)
def test_patterns_survive_the_way_to_values_and_back(number_format):
    bits = patterns(number_format)
    values = bits.view(number_format.value_dtype)
    np.testing.assert_array_equal(to_bits(jnp.asarray(values)), bits)
    there_and_back = jax.jit(lambda b: to_bits(from_bits(b, number_format)))
    np.testing.assert_array_equal(there_and_back(jnp.asarray(bits)), bits)
    assert from_bits(jnp.asarray(bits), number_format).dtype == number_format.value_dtype


@pytest.mark.parametrize("number_format", FORMATS[:3], ids=by_name)
def test_layout_gives_the_value_by_definition(number_format):
    bits = patterns(number_format).astype(np.int64)
    mantissa = bits % 2**number_format.mantissa_bits
    exponent = bits // 2**number_format.mantissa_bits % 2**number_format.exponent_bits
    sign = bits // 2 ** (number_format.mantissa_bits + number_format.exponent_bits)
    assert set(sign) == {0, 1}
    # Subnormals have exponent 1 and no leading one.
    whole = mantissa / 2**number_format.mantissa_bits + (exponent > 0)
    value = (-1.0) ** sign * whole * 2.0 ** (np.maximum(exponent, 1) - number_format.bias)
    finite = exponent < 2**number_format.exponent_bits - 1
    stored = patterns(number_format)[finite].view(number_format.value_dtype).astype(np.float64)
    np.testing.assert_array_equal(value[finite], stored)
    np.testing.assert_array_equal(np.signbit(value[finite]), np.signbit(stored))


@pytest.mark.parametrize("number_format", FORMATS, ids=by_name)
def test_formats_are_found_by_dtype_and_may_be_static(number_format):
    assert format_of(number_format.value_dtype) is number_format
    assert number_format.total_bits == 1 + number_format.exponent_bits + number_format.mantissa_bits
    assert number_format.total_bits == 8 * number_format.bits_dtype.itemsize
    total = jax.jit(lambda x, static: x + static.total_bits, static_argnums=1)
    assert total(jnp.int32(0), number_format) == number_format.total_bits
