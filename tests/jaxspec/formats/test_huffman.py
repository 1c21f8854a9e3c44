import itertools
from fractions import Fraction
from functools import partial

import constriction
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxspec.formats import huffman

# The halves of a Fibonacci tree are as unequal as they can be: 15 symbols want 14 bits.
FIBONACCI = np.array([1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610])


def brute_force(counts, max_length):
    """Fewest bits of any lengths that satisfy Kraft's inequality, all vectors tried."""
    used = [count for count in counts if count]
    feasible = (
        lengths
        for lengths in itertools.product(range(1, max_length + 1), repeat=len(used))
        if sum(Fraction(1, 1 << length) for length in lengths) <= 1
    )
    return min(sum(n * length for n, length in zip(used, lengths)) for lengths in feasible)


def kraft(lengths):
    return sum(Fraction(1, 1 << int(length)) for length in lengths if length)


def bits_of(counts, **options):
    return huffman.num_bits(counts, huffman.code_lengths(np.asarray(counts), **options))


def bit_string(code, symbol):
    return format(int(code.codewords[symbol]), f"0{int(code.lengths[symbol])}b")


def test_lengths_by_hand():
    # 1 + 2 = 3, 3 + 3 = 6, 6 + 7 = 13: the 7 is one step below the root, the symbol of count 3 two, the others three.
    np.testing.assert_array_equal(huffman.code_lengths(np.array([3, 0, 1, 7, 2])), [2, 0, 3, 1, 3])
    assert bits_of([3, 0, 1, 7, 2]) == 6 + 3 + 7 + 6


def test_limited_lengths_by_hand():
    # The best code of 1, 1, 2, 4 has lengths 3, 3, 2, 1 (14 bits); two bits leave nothing but 2, 2, 2, 2 (16 bits).
    assert bits_of([4, 1, 2, 1]) == 14
    np.testing.assert_array_equal(huffman.code_lengths(np.array([4, 1, 2, 1]), max_length=2), [2, 2, 2, 2])


@pytest.mark.parametrize("max_length", [2, 3, 4])
def test_no_code_of_up_to_five_symbols_is_shorter(max_length):
    rng = np.random.default_rng(max_length)
    for size in range(2, min(5, 1 << max_length) + 1):
        for largest in (2, 9, 300):
            counts = rng.integers(1, largest, size=size, endpoint=True)
            assert bits_of(counts, max_length=max_length) == brute_force(counts, max_length), counts


@pytest.mark.parametrize("seed", range(6))
def test_unlimited_length_is_that_of_another_library(seed):
    rng = np.random.default_rng(seed)
    counts = [FIBONACCI, rng.integers(1, 9, size=37), rng.geometric(0.05, size=61), np.array([3, 3, 3, 3, 3, 1, 17])][
        seed % 4
    ]
    counts = rng.permutation(counts)
    tree = constriction.symbol.huffman.EncoderHuffmanTree(counts.astype(float))
    encoder = constriction.symbol.QueueEncoder()
    for symbol in np.repeat(np.arange(counts.size), counts):
        encoder.encode_symbol(int(symbol), tree)
    _, bits = encoder.get_compressed_and_bitrate()
    assert bits_of(counts, max_length=20) == bits


@pytest.mark.scheme_matrix
@given(st.lists(st.integers(0, 60), max_size=40), st.integers(6, 12))
def test_lengths_of_any_counts(counts, max_length):
    counts = np.array(counts, np.int64)
    lengths = huffman.code_lengths(counts, max_length=max_length)
    used = counts > 0
    assert lengths.dtype == np.uint8
    assert lengths.shape == counts.shape
    np.testing.assert_array_equal(lengths > 0, used)
    assert lengths.max(initial=0) <= max_length
    if used.sum() > 1:
        # No codeword is left over, and the rarer of two symbols has the longer codeword.
        assert kraft(lengths) == 1
        order = np.argsort(counts[used], kind="stable")
        assert np.all(np.diff(lengths[used][order].astype(int)) <= 0)
        # Entropy's bounds: the mean is at most one bit above it when nothing is limited.
        share = counts[used] / counts.sum()
        entropy = -np.sum(share * np.log2(share))
        assert entropy - 1e-9 <= huffman.mean_length(counts, lengths)
        assert huffman.mean_length(counts, huffman.code_lengths(counts, max_length=32)) < entropy + 1


@pytest.mark.parametrize("size", [12, 40_000])
def test_huge_counts_are_exact(size):
    # Differences of one in counts of 1e12, and so many absent symbols that their sentinels might overflow.
    counts = np.zeros(size, np.int64)
    counts[[1, 4, 5, 8, 11]] = 10**12 + np.array([3, 0, 1, 2, 0])
    lengths = huffman.code_lengths(counts, max_length=32)
    # Of five nearly equal symbols the two rarest (the two of exactly 1e12) get three bits.
    np.testing.assert_array_equal(lengths[[1, 4, 5, 8, 11]], [2, 3, 2, 2, 3])
    assert huffman.num_bits(counts, lengths) == 12 * 10**12 + 2 * (3 + 1 + 2)
    assert np.count_nonzero(lengths) == 5


def test_canonical_codewords_by_hand():
    code = huffman.code_of_lengths(np.array([3, 2, 0, 1, 3]), max_length=5)
    assert [bit_string(code, symbol) for symbol in (3, 1, 0, 4)] == ["0", "10", "110", "111"]
    assert code.codewords[2] == 0
    assert code.lengths.dtype == jnp.uint8
    assert code.codewords.dtype == jnp.uint32


@pytest.mark.scheme_matrix
@given(st.lists(st.integers(0, 30), min_size=2, max_size=33))
def test_codewords_are_canonical_and_the_table_decodes_them(counts):
    code = huffman.code_of_lengths(huffman.code_lengths(np.array(counts), max_length=7), max_length=7)
    words = {symbol: bit_string(code, symbol) for symbol in range(len(counts)) if counts[symbol]}
    assert sorted(words, key=lambda symbol: (len(words[symbol]), symbol)) == sorted(words, key=words.get)
    table = huffman.decoding_table(code)
    for window in range(1 << 7):
        matches = [symbol for symbol in words if format(window, "07b").startswith(words[symbol])]
        found = [int(table.symbols[window])] if table.lengths[window] else []
        assert found == matches
        assert int(table.lengths[window]) == (len(words[matches[0]]) if matches else 0)


COUNTS = {
    "skewed": [41.0, 3.0, 0.7, 19.0, 9.5, 0.2],
    "flat": [1.0, 1.1, 0.93, 1.04, 0.97, 1.21, 0.88],
    "with absent ones": [0.0, 5.0, 0.0, 1.3, 0.4, 0.0],
    "two": [0.3, 11.0],
    "one": [0.0, 7.5],
    "none": [0.0, 0.0, 0.0],
}


@pytest.mark.parametrize("max_length", [3, 12])
@pytest.mark.parametrize("name", COUNTS)
def test_expected_bits_is_the_mean_of_the_exact_code(name, max_length):
    counts = np.array(COUNTS[name])
    whole = np.round(counts * 1000).astype(int)
    expected = huffman.mean_length(whole, huffman.code_lengths(whole, max_length=max_length))
    found = jax.jit(partial(huffman.expected_bits, max_length=max_length))(jnp.asarray(counts))
    np.testing.assert_allclose(found, expected, rtol=3e-6)


@pytest.mark.scheme_matrix
def test_expected_bits_at_the_ends():
    means = {max_length: jax.jit(partial(huffman.expected_bits, max_length=max_length)) for max_length in (1, 3)}
    assert means[3](jnp.zeros(0)) == 0
    np.testing.assert_array_equal(jax.jit(jax.grad(partial(huffman.expected_bits, max_length=3)))(jnp.zeros(3)), 0)
    # Three symbols do not fit one bit: no number, rather than a wrong one; absent ones take no place.
    assert jnp.isnan(means[1](jnp.array([1.0, 2.0, 3.0])))
    assert means[1](jnp.array([1.0, 0.0, 3.0])) == 1
    # What appears needs a codeword: one of two equal symbols gives up half of its room.
    np.testing.assert_allclose(means[3](jnp.array([0.5, 0.5, 2e-8])), 1.5, rtol=1e-6)
    assert means[3](jnp.array([0.5, 0.5, 0.5e-8])) == 1


@pytest.mark.scheme_matrix
@pytest.mark.parametrize("max_length", [3, 12])
@pytest.mark.parametrize("name", ["skewed", "two"])
def test_gradient_of_expected_bits(gradient_check, x64, name, max_length):
    counts = jnp.asarray(COUNTS[name])
    assert counts.dtype == jnp.float64
    if name == "two":
        # Either symbol always takes one bit, whatever the counts.
        np.testing.assert_allclose(jax.jit(jax.grad(huffman.expected_bits))(counts), 0, atol=1e-12)
        return
    gradient_check(lambda c: huffman.expected_bits(c, max_length=max_length))(counts)
