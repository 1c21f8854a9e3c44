import itertools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.formats.unary import (
    CODEBOOK_ENTRY_BITS,
    NUM_SYMBOLS,
    build_codebook,
    code_length_counts,
    encode,
    encoded_bits,
    mean_code_length,
    mean_length,
    weighted_counts,
)

pytestmark = pytest.mark.scheme_matrix


def counts_of(*values):
    return jnp.zeros(NUM_SYMBOLS).at[jnp.array([3, 200, 0, 91, 255, 17])[: len(values)]].set(jnp.array(values, float))


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


@pytest.mark.parametrize("seed", range(4))
def test_no_other_ranking_is_shorter(seed):
    counts = np.random.default_rng(seed).integers(1, 30, size=5).astype(float)
    code = [np.dot(counts, 1 + np.array(ranks)) for ranks in itertools.permutations(range(5))]
    expected = (min(code) + CODEBOOK_ENTRY_BITS * 5) / counts.sum()
    np.testing.assert_allclose(mean_code_length(counts_of(*counts)), expected, rtol=1e-6)


def test_weighted_counts_are_those_of_bincount():
    rng = np.random.default_rng(5)
    symbols, weights = rng.integers(256, size=(2, 3, 57)), rng.random((2, 3, 57))
    counts = jax.jit(weighted_counts)(jnp.asarray(symbols, jnp.uint16), jnp.asarray(weights, jnp.float32))
    assert counts.shape == (2, 3, NUM_SYMBOLS)
    for lead in np.ndindex(2, 3):
        expected = np.bincount(symbols[lead], weights[lead], NUM_SYMBOLS)
        np.testing.assert_allclose(counts[lead], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 5), (3, 1, 4100)])
def test_weighted_counts_of_any_shape(shape):
    # 4100 values fill more than one block of the sum.
    rng = np.random.default_rng(len(shape))
    symbols, weights = rng.integers(256, size=shape), rng.random(shape).astype(np.float32)
    counts = jax.jit(weighted_counts)(jnp.asarray(symbols, jnp.uint8), jnp.asarray(weights))
    assert counts.shape == (*shape[:-1], NUM_SYMBOLS)
    for lead in np.ndindex(shape[:-1]):
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


def codewords(symbols, ranking):
    """The stream as text, from the symbols in order of their ranks."""
    return "".join("0" * ranking.index(symbol) + "1" for symbol in np.asarray(symbols).tolist())


def as_text(stream):
    """The stored bits as text, padding included."""
    return "".join(f"{byte:08b}" for byte in np.asarray(stream.data).tolist())


def test_codebook_by_hand():
    # Five times 91, three times 17 and 200 (a tie: the lower symbol first), once 0; then what never occurs, by value.
    counts = jnp.zeros(NUM_SYMBOLS, jnp.int32).at[jnp.array([200, 91, 17, 0])].set(jnp.array([3, 5, 3, 1]))
    codebook = build_codebook(counts)
    rest = [symbol for symbol in range(256) if symbol not in (0, 17, 91, 200)]
    assert np.asarray(codebook.symbols).tolist() == [91, 17, 200, 0, *rest]
    assert int(codebook.size) == 4
    np.testing.assert_array_equal(codebook.symbols[codebook.rank_of.astype(int)], np.arange(256))
    assert codebook.symbols.dtype == codebook.rank_of.dtype == jnp.uint8


def test_stream_by_hand():
    # Ranks: 91 is 0, 17 is 1, 200 is 2. 200, 91, 200, 17 are 001 1 001 01 = 0011 0010 1000 0000: nine bits.
    codebook = build_codebook(jnp.zeros(NUM_SYMBOLS).at[jnp.array([91, 17, 200])].set(jnp.array([4.0, 3.0, 2.0])))
    stream = encode(jnp.array([200, 91, 200, 17], jnp.uint8), codebook, capacity_bytes=3)
    assert np.asarray(stream.data).tolist() == [0x32, 0x80, 0]
    assert int(stream.num_bits) == 9


@settings(max_examples=15)
@given(size=st.sampled_from([0, 1, 2, 7, 61]), distinct=st.sampled_from([1, 2, 9, 256]), seed=st.integers(0, 2**32 - 1))
def test_stream_is_the_codewords_written_out(size, distinct, seed):
    rng = np.random.default_rng(seed)
    symbols = rng.choice(rng.permutation(256)[:distinct], size=size).astype(np.uint8)
    counts = np.bincount(symbols, minlength=256)
    codebook = build_codebook(jnp.asarray(counts))
    expected = codewords(symbols, sorted(range(256), key=lambda symbol: (-counts[symbol], symbol)))
    # Too few bytes for some of the longest, more than needed elsewhere.
    stream = jax.jit(encode, static_argnames="capacity_bytes")(jnp.asarray(symbols), codebook, capacity_bytes=80)
    assert as_text(stream) == expected.ljust(640, "0")[:640]
    assert int(stream.num_bits) == int(encoded_bits(jnp.asarray(symbols), codebook)) == len(expected)
    assert len(expected) == round(float(mean_length(jnp.asarray(counts, jnp.float32))) * size)


def test_a_stream_that_does_not_fit_says_so_and_keeps_its_start():
    symbols = jnp.asarray(gaussian_exponents(3, rows=1, columns=65)[0], jnp.uint8)
    codebook = build_codebook(jnp.bincount(symbols, length=256))
    whole = encode(symbols, codebook, capacity_bytes=100)
    cut = encode(symbols, codebook, capacity_bytes=11)
    assert cut.num_bits == whole.num_bits > 88
    np.testing.assert_array_equal(cut.data, whole.data[:11])
    assert encode(symbols, codebook, capacity_bytes=0).num_bits == whole.num_bits


def test_mean_length_by_hand():
    # Lengths 1 (five times), 2 (three times), 3 (once).
    counts = counts_of(3, 1, 5)
    np.testing.assert_allclose(mean_length(counts), 14 / 9, rtol=1e-6)
    assert np.asarray(code_length_counts(counts))[:4].tolist() == [5, 3, 1, 0]


@pytest.mark.parametrize("statistic", [mean_length, mean_code_length])
def test_gradient_by_counts_at_a_kink_and_away_from_it(statistic, check_gradient):
    # Symbols 9 and 40 tie. The gradient is that of 9 before 40: 9 may grow and 40 may shrink without changing it.
    where = jnp.array([200, 9, 40, 131, 3])
    counts = jnp.array([0.5, 4.25, 4.25, 2.5, 8.0])
    function = lambda c: statistic(jnp.zeros(NUM_SYMBOLS, c.dtype).at[where].set(c))
    check_gradient(function, counts, side=jnp.array([0, 1, -1, 0, 0]))
