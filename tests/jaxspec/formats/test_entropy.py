import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.formats.fields import entropy_bits, entropy_of, histogram

pytestmark = pytest.mark.scheme_matrix

measure = jax.jit(entropy_bits, static_argnames="axis")
count = jax.jit(histogram, static_argnums=1)


def by_definition(counts):
    total = sum(counts)
    return -math.fsum(count / total * math.log2(count / total) for count in counts if count)


def test_entropy_by_hand():
    # Shares 1/2, 1/4, 1/8, 1/8: (1/2) 1 + (1/4) 2 + 2 (1/8) 3 = 1.75 bits.
    for dtype in (jnp.int32, jnp.uint8, jnp.float32):
        np.testing.assert_allclose(measure(jnp.array([12, 6, 0, 3, 3], dtype)), 1.75, rtol=1e-6)
    np.testing.assert_allclose(entropy_of(jnp.array([0.125, 0.5, 0.125, 0.25, 0.0])), 1.75, rtol=1e-6)


def test_limits():
    np.testing.assert_allclose(measure(jnp.array([0, 41, 0])), 0, atol=1e-6)
    assert measure(jnp.zeros(7, jnp.int32)) == 0
    assert measure(jnp.zeros(0, jnp.int32)) == 0
    np.testing.assert_allclose(measure(jnp.array([5])), 0, atol=1e-6)
    for n in (1, 2, 3, 100, 1000):
        np.testing.assert_allclose(measure(jnp.full(n, 7)), math.log2(n), rtol=2e-6)


@settings(max_examples=25)
@given(counts=st.lists(st.integers(0, 10**6), min_size=1, max_size=40), scale=st.sampled_from([1.0, 0.3, 1e-6, 1e6]))
def test_entropy_by_definition_and_of_any_scale(counts, scale):
    expected = by_definition(counts) if sum(counts) else 0.0
    # Zeros behind: one shape is compiled, and they must not count.
    value = measure(jnp.asarray(counts + [0] * (40 - len(counts)), jnp.float32) * scale)
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)
    assert -1e-6 <= float(value) <= math.log2(len(counts)) + 1e-5


def test_gradient_of_counts(check_gradient):
    counts = jnp.asarray(np.random.default_rng(3).uniform(0.2, 9.0, (2, 3, 11)))
    weight = jnp.array([[1.0, -0.6, 2.0], [0.3, 1.1, -1.0]])
    check_gradient(lambda c: jnp.sum(weight * entropy_bits(c)), counts)
    check_gradient(lambda c: jnp.sum(weight[0] * jnp.sum(entropy_bits(c, axis=1), axis=1)), jnp.moveaxis(counts, 0, 1))


def test_histogram_is_that_of_bincount():
    rng = np.random.default_rng(4)
    for dtype, num_symbols in ((np.uint8, 256), (np.uint16, 300), (np.int32, 7), (np.uint32, 65536)):
        symbols = rng.integers(num_symbols, size=(2, 3, 101)).astype(dtype)
        counts = count(jnp.asarray(symbols), num_symbols)
        assert counts.shape == (2, 3, num_symbols)
        for lead in np.ndindex(2, 3):
            np.testing.assert_array_equal(counts[lead], np.bincount(symbols[lead], minlength=num_symbols))
