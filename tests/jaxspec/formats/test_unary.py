import collections
import itertools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jaxspec.formats.unary import CODEBOOK_ENTRY_BITS, NUM_SYMBOLS, mean_code_length, weighted_counts


def counts_of(*values):
    return jnp.zeros(NUM_SYMBOLS).at[jnp.array([3, 200, 0, 91, 255, 17])[: len(values)]].set(jnp.array(values, float))


def encoded_bits(symbols):
    """Bits of a stream that is written out: the symbols as 1, 01, 001, ... by falling frequency, and the codebook."""
    ranking = collections.Counter(np.asarray(symbols).tolist()).most_common()
    code = {symbol: "0" * rank + "1" for rank, (symbol, _) in enumerate(ranking)}
    stream = "".join(code[symbol] for symbol in np.asarray(symbols).tolist())
    return len(stream) + CODEBOOK_ENTRY_BITS * len(code)


def gaussian_exponents(seed, rows=256, columns=1024):
    """Exponents of Gaussian rows whose scales vary by a factor of 1.35 up and down (one standard deviation)."""
    rng = np.random.default_rng(seed)
    scale = 0.02 * np.exp(0.3 * rng.standard_normal((rows, 1)))
    value = (scale * rng.standard_normal((rows, columns))).astype(ml_dtypes.bfloat16)
    return (value.view(np.uint16) >> 7) & 0xFF


def test_mean_code_length_by_hand():
    # 5 x "1", 3 x "01", 1 x "001": 5 + 6 + 3 = 14 bits of code and 3 x 8 of codebook over 9 exponents.
    np.testing.assert_allclose(mean_code_length(counts_of(3, 1, 5)), (14 + 24) / 9, rtol=1e-6)


def test_one_symbol_costs_one_bit_and_its_share_of_the_codebook():
    np.testing.assert_allclose(mean_code_length(counts_of(40)), 1 + 8 / 40, rtol=1e-6)


def test_nothing_coded_costs_nothing():
    assert mean_code_length(jnp.zeros(NUM_SYMBOLS)) == 0
    np.testing.assert_array_equal(jnp.isfinite(jax.grad(mean_code_length)(jnp.zeros(NUM_SYMBOLS))), True)


def test_a_symbol_fades_out_of_the_codebook_with_its_weight():
    # 4 x "1" and 0.25 x "01": 4.5 bits of code, 8 x 1.25 of codebook, 4.25 values.
    np.testing.assert_allclose(mean_code_length(counts_of(4.0, 0.25)), (4.5 + 10) / 4.25, rtol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_no_other_ranking_is_shorter(seed):
    counts = np.random.default_rng(seed).integers(1, 30, size=5).astype(float)
    code = [np.dot(counts, 1 + np.array(ranks)) for ranks in itertools.permutations(range(5))]
    expected = (min(code) + CODEBOOK_ENTRY_BITS * 5) / counts.sum()
    np.testing.assert_allclose(mean_code_length(counts_of(*counts)), expected, rtol=1e-6)


def test_length_is_that_of_a_stream_written_out():
    symbols = gaussian_exponents(0, rows=3, columns=333)
    length = mean_code_length(weighted_counts(jnp.asarray(symbols), jnp.ones(symbols.shape)))
    np.testing.assert_allclose(length, [encoded_bits(row) / 333 for row in symbols], rtol=1e-5)


def test_weighted_counts_are_those_of_bincount():
    rng = np.random.default_rng(5)
    symbols, weights = rng.integers(256, size=(2, 3, 57)), rng.random((2, 3, 57))
    counts = jax.jit(weighted_counts)(jnp.asarray(symbols, jnp.uint16), jnp.asarray(weights, jnp.float32))
    assert counts.shape == (2, 3, NUM_SYMBOLS)
    for lead in np.ndindex(2, 3):
        expected = np.bincount(symbols[lead], weights[lead], NUM_SYMBOLS)
        np.testing.assert_allclose(counts[lead], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_exponents_of_gaussian_weights_cost_285_bits(seed):
    # Cassandra, IV-B, prints 2.85 for Llama's weights.
    symbols = gaussian_exponents(seed).reshape(-1)
    length = mean_code_length(weighted_counts(jnp.asarray(symbols), jnp.ones(symbols.size)))
    assert abs(float(length) - 2.85) < 0.06


def test_gradient_by_the_weights_of_values(check_gradient):
    rng = np.random.default_rng(7)
    symbols = jnp.asarray(rng.integers(120, 126, size=(2, 41)))
    # Of one symbol only a fraction is left, so that its codebook entry fades.
    symbols = symbols.at[0, 5].set(60)
    weights = jnp.asarray(rng.uniform(0.05, 0.9, size=(2, 41)))
    check_gradient(lambda w: jnp.sum(mean_code_length(weighted_counts(symbols, w)) * jnp.array([1.0, -0.7])), weights)
