import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.formats.fields import entropy_bits, entropy_of, histogram

pytestmark = pytest.mark.scheme_matrix

# Compiling is what these tests spend their time on.
QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
measure = jax.jit(entropy_bits, static_argnames="axis", compiler_options=QUICKLY)
count = jax.jit(histogram, static_argnums=1, compiler_options=QUICKLY)


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


def test_entropy_along_any_axis():
    counts = np.random.default_rng(1).integers(0, 9, size=(3, 5, 4))
    counts[1, :, 2] = 0
    for axis in (0, 1, -1):
        rows = np.moveaxis(counts, axis, -1)
        lists = rows.reshape(-1, rows.shape[-1]).tolist()
        expected = [by_definition(row) if sum(row) else 0.0 for row in lists]
        value = measure(jnp.asarray(counts), axis=axis)
        np.testing.assert_allclose(value, np.reshape(expected, rows.shape[:-1]), rtol=1e-5, atol=1e-6)


def test_gradient_of_counts(check_gradient):
    counts = jnp.asarray(np.random.default_rng(3).uniform(0.2, 9.0, (2, 3, 11)))
    weight = jnp.array([[1.0, -0.6, 2.0], [0.3, 1.1, -1.0]])
    check_gradient(lambda c: jnp.sum(weight * entropy_bits(c)), counts)
    check_gradient(lambda c: jnp.sum(weight[0] * jnp.sum(entropy_bits(c, axis=1), axis=1)), jnp.moveaxis(counts, 0, 1))


def test_gradient_of_probabilities(check_gradient):
    check_gradient(lambda p: entropy_of(p), jnp.array([0.21, 0.03, 0.5, 0.11, 0.15]))


@pytest.mark.parametrize(("dtype", "slope"), [(jnp.float32, 126), (jnp.float64, 1022)])
def test_slope_at_zero_is_that_of_the_chord_to_the_smallest_normal_number(x64, dtype, slope):
    p = jnp.array([0.25, 0.0, 0.75, 0.0], dtype)
    value, gradient = jax.value_and_grad(entropy_of)(p)
    np.testing.assert_allclose(value, 2 - 0.75 * math.log2(3), rtol=1e-6)
    expected = [2 - 1 / math.log(2), slope, -math.log2(0.75) - 1 / math.log(2), slope]
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)
    smallest = np.finfo(dtype).tiny
    np.testing.assert_allclose(-np.log2(smallest), slope)


def test_slope_of_counts_at_zero():
    # dH/dc = (slope at its share - mean of the slopes, weighted with the shares) / N. At shares of 1/2 the slope is
    # 1 - 1/ln 2 = -0.4427, and so is the mean; at 0 it is the chord's 126.
    gradient = jax.grad(entropy_bits)(jnp.array([4.0, 0.0, 4.0]))
    np.testing.assert_allclose(gradient, [0, (126 - 1 + 1 / math.log(2)) / 8, 0], rtol=1e-6, atol=1e-6)


def test_nothing_counted_has_no_gradient_and_masks_do_not_break_it():
    np.testing.assert_array_equal(jax.grad(entropy_bits)(jnp.zeros(4)), np.zeros(4))
    masked = jax.grad(lambda c: entropy_bits(c * jnp.array([1.0, 0.0, 1.0])))(jnp.array([2.0, 5.0, 6.0]))
    assert np.all(np.isfinite(masked))
    assert masked[1] == 0


def test_histogram_is_that_of_bincount():
    rng = np.random.default_rng(4)
    for dtype, num_symbols in ((np.uint8, 256), (np.uint16, 300), (np.int32, 7), (np.uint32, 65536)):
        symbols = rng.integers(num_symbols, size=(2, 3, 101)).astype(dtype)
        counts = count(jnp.asarray(symbols), num_symbols)
        assert counts.shape == (2, 3, num_symbols)
        for lead in np.ndindex(2, 3):
            np.testing.assert_array_equal(counts[lead], np.bincount(symbols[lead], minlength=num_symbols))


def test_no_symbols_are_refused():
    with pytest.raises(ValueError, match="num_symbols is 0"):
        histogram(jnp.zeros(3, jnp.uint8), 0)
