import itertools
import math

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jaxspec.formats import fields
from jaxspec.formats.patterns import to_bits

PATTERNS = np.arange(1 << 16, dtype=np.uint16)
PARTITIONS = ["1-5-5-5", "1-4-4-7", "4-4-4-4", "8-8", "1-8-7", "16", "2-3-11", "15-1"]


measure = jax.jit(fields.entropies, static_argnums=1)


def as_text(pattern, widths):
    """Fields by cutting the written-out binary number."""
    text, cut = format(int(pattern), f"0{sum(widths)}b"), np.cumsum([0, *widths])
    return [int(text[a:b], 2) for a, b in itertools.pairwise(cut)]


def entropy(values):
    counts = np.unique(values, return_counts=True)[1]
    share = counts / counts.sum()
    return -np.sum(share * np.log2(share))


def test_fields_by_hand():
    # -1.40625 = -(1 + 13/32) = -(1 + 52/128), exponent 0 + 127 = 0x7F.
    bits = to_bits(jnp.asarray(-1.40625, jnp.bfloat16))
    assert [int(field) for field in fields.split(bits, (1, 8, 7))] == [1, 127, 52]
    assert [int(field) for field in fields.split(bits, (1, 4, 4, 7))] == [1, 7, 15, 52]
    # 5.3125 = 2^2 (1 + 336/1024), exponent 2 + 15 = 17, 336 = 01010 10000b.
    bits = to_bits(jnp.asarray(5.3125, jnp.float16))
    assert [int(field) for field in fields.split(bits, (1, 5, 5, 5))] == [0, 17, 10, 16]
    # -90 = 0xA6 in two's complement.
    assert [int(field) for field in fields.split(to_bits(jnp.asarray(-90, jnp.int8)), (4, 4))] == [10, 6]


@pytest.mark.parametrize("text", PARTITIONS)
def test_merging_undoes_splitting_of_all_patterns(text):
    widths = fields.parse_widths(text)
    parts = jax.jit(fields.split, static_argnums=1)(jnp.asarray(PATTERNS), widths)
    assert [part.dtype for part in parts] == [np.uint8 if width <= 8 else np.uint16 for width in widths]
    np.testing.assert_array_equal(jax.jit(fields.merge, static_argnums=1)(parts, widths), PATTERNS)
    some = PATTERNS[::331]
    expected = np.transpose([as_text(pattern, widths) for pattern in some])
    for part, column in zip(parts, expected):
        np.testing.assert_array_equal(part[::331], column)


def test_widths_are_read_from_text():
    assert fields.parse_widths("1-5-5-5") == (1, 5, 5, 5)
    assert fields.parse_widths("16") == (16,)
    assert fields.parse_widths("1-8-23") == (1, 8, 23)


@pytest.mark.scheme_matrix
def test_entropies_by_hand():
    # 0x3F80 x 2, 0xBF80, 0x4040: signs 3:1 is 0.8113 bits, exponents 127 x 3 and 128 the same, mantissas 0 x 3 and 64 too.
    bits = jnp.array([0x3F80, 0xBF80, 0x3F80, 0x4040], jnp.uint16)
    quarter = 2 - 0.75 * math.log2(3)
    np.testing.assert_allclose(measure(bits, (1, 8, 7)), [quarter] * 3, rtol=1e-6)
    # Bytes: 3F, BF, 3F, 40 is 1.5 bits; 80 x 3 and 40 again 0.8113. The whole pattern: 1.5 bits.
    np.testing.assert_allclose(measure(bits, (8, 8)), [1.5, quarter], rtol=1e-6)
    np.testing.assert_allclose(measure(bits, (16,)), [1.5], rtol=1e-6)


@pytest.mark.scheme_matrix(2)
@pytest.mark.parametrize("text", PARTITIONS[:4])
def test_entropies_of_gaussian_values(text):
    values = (0.02 * np.random.default_rng(0).standard_normal((31, 97))).astype(ml_dtypes.bfloat16)
    widths = fields.parse_widths(text)
    measured = measure(jnp.asarray(values.view(np.uint16)), widths)
    parts = np.transpose([as_text(pattern, widths) for pattern in values.view(np.uint16).reshape(-1)])
    np.testing.assert_allclose(measured, [entropy(part) for part in parts], rtol=1e-5, atol=1e-6)
    # Fields that are coded apart never cost less than the pattern as a whole, nor more than their width.
    assert np.sum(measured) >= entropy(values.view(np.uint16)) - 1e-4
    assert np.all(np.asarray(measured) <= np.asarray(widths) + 1e-5)


@pytest.mark.scheme_matrix
def test_expected_bits_are_those_of_the_measured_field(check_gradient):
    # Exponents 127 x 3 and 128: shares 3/4 and 1/4.
    np.testing.assert_allclose(fields.expected_bits(jnp.array([0.75, 0.25, 0.0])), 2 - 0.75 * math.log2(3), rtol=1e-6)
    logits = jnp.asarray(np.random.default_rng(3).standard_normal((2, 6)))
    check_gradient(lambda x: jnp.sum(fields.expected_bits(jax.nn.softmax(x)) * jnp.array([1.0, -0.4])), logits)
