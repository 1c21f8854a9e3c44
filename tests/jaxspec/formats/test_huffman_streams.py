import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from huffman_streams_samples import COUNTS, A, B, C, D, by_lane
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.formats import huffman_streams
from jaxspec.formats.huffman import code_lengths, code_of_lengths
from jaxspec.formats.huffman_streams import code_of_symbols

pytestmark = pytest.mark.scheme_matrix


def streams_in_plain_python(symbols, code, lanes):
    """Words of each lane: its codewords written as text, then cut."""
    lengths, codewords = np.asarray(code.lengths).tolist(), np.asarray(code.codewords).tolist()
    text_of = [f"{word:0{length}b}" if length else "" for word, length in zip(codewords, lengths)]
    shortest = min((length, symbol) for symbol, length in enumerate(lengths) if length)[1]
    symbols = np.asarray(symbols).tolist()
    symbols += [shortest] * (-len(symbols) % (2 * lanes))
    words = []
    for lane in range(lanes):
        mine = [s for i, s in enumerate(symbols) if i // 2 % lanes == lane]
        text = "".join(text_of[symbol] for symbol in mine)
        text += "0" * (-len(text) % 32)
        words.append([int(text[i : i + 32], 2) for i in range(0, len(text), 32)])
    return words


def test_one_lane_by_hand(encode_streams, decode_streams, small_code):
    # A B C D A, and an A that fills the third step: 0 10 110 111 0 0 = 0101 1011 1000.
    symbols = jnp.array([A, B, C, D, A], jnp.uint8)
    streams = encode_streams(symbols, small_code, lanes=1)
    assert by_lane(streams) == [[0x5B800000]]
    found = decode_streams(streams, huffman_streams.entries(small_code), num_symbols=5)
    assert found.pairs.tolist() == [A, B, C, D, A]
    assert found.pairs.dtype == jnp.uint16
    assert bool(found.complete)


def test_two_lanes_by_hand(encode_streams, decode_streams, small_code):
    # Two by two: the first lane has A B and B D, the second C D and, to fill the step, A A.
    # 0 10 10 111 = 0101 0111 and 110 111 0 0 = 1101 1100.
    symbols = jnp.array([A, B, C, D, B, D], jnp.uint8)
    streams = encode_streams(symbols, small_code, lanes=2)
    assert by_lane(streams) == [[0x57000000], [0xDC000000]]
    # Two words, and a count of 16 bits for each lane.
    assert huffman_streams.num_bits(streams) == 2 * 32 + 2 * 16
    assert (
        decode_streams(streams, huffman_streams.entries(small_code), num_symbols=6).pairs.tolist() == symbols.tolist()
    )


@settings(max_examples=80)
@given(
    # One, fewer symbols than lanes, a last step that is not full, long lanes.
    shape=st.sampled_from([(1, 1), (3, 8), (77, 2), (100, 8), (1001, 1)]),
    kind=st.sampled_from(sorted(COUNTS)),
    runs=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_round_trip_against_plain_python(encode_streams, decode_streams, shape, kind, runs, seed):
    (n, lanes), counts = shape, COUNTS[kind]
    code = code_of_symbols(counts)
    rng = np.random.default_rng(seed)
    used = np.flatnonzero(counts)
    # As often as counted, or in long runs of any symbol, the rarest among them.
    symbols = (
        np.repeat(rng.choice(used, size=n), rng.integers(1, n + 1))
        if runs
        else rng.choice(used, size=n, p=counts[used] / counts.sum())
    )
    symbols = symbols[:n].astype(np.uint8)
    streams = encode_streams(jnp.asarray(symbols), code, lanes=lanes)
    expected = streams_in_plain_python(symbols, code, lanes)
    assert by_lane(streams) == expected
    total = sum(map(len, expected))
    assert not np.asarray(streams.words)[total:].any()
    assert huffman_streams.num_bits(streams) == 32 * total + 16 * lanes
    found = decode_streams(streams, huffman_streams.entries(code), num_symbols=n)
    np.testing.assert_array_equal(found.pairs, symbols)
    assert bool(found.complete)


def test_symbols_of_16_bits_and_codewords_of_16_bits(encode_streams, decode_streams):
    # Powers of two as counts give a codeword of each length; the last two of 17 symbols have 16 bits.
    counts = np.zeros(700, np.int64)
    counts[np.arange(17) * 43] = 1 << np.arange(17)
    code = code_of_lengths(code_lengths(counts, max_length=16), max_length=16)
    assert np.asarray(code.lengths).max() == 16
    # Rarest first, so that two of the longest meet in one step.
    symbols = (np.arange(51) % 17 * 43).astype(np.uint16)
    streams = encode_streams(jnp.asarray(symbols), code, lanes=2)
    assert by_lane(streams) == streams_in_plain_python(symbols, code, 2)
    np.testing.assert_array_equal(decode_streams(streams, huffman_streams.entries(code), num_symbols=51).pairs, symbols)


@pytest.mark.parametrize("skew", [False, True])
def test_every_bfloat16_pattern(encode_streams, skew):
    """All exponents with all signs and mantissas; and all of them once more among many of one exponent."""
    patterns = np.arange(1 << 16, dtype=np.uint16)
    if skew:
        patterns = np.concatenate([patterns, np.full(1 << 16, 0xBE4D, np.uint16)])
        patterns = np.random.default_rng(1).permutation(patterns)
    exponents = (patterns >> 7 & 0xFF).astype(np.uint8)
    code = code_of_symbols(np.bincount(exponents, minlength=256))
    lanes = huffman_streams.num_lanes(patterns.size)
    streams = encode_streams(jnp.asarray(exponents), code, lanes=lanes)
    beside = (patterns >> 15 << 7 | patterns & 0x7F).astype(np.uint8).view("<u2").reshape(-1, lanes)
    found = jax.jit(huffman_streams.decode_bfloat16)(
        streams, huffman_streams.entries(code, shift=7), jnp.asarray(beside)
    )
    assert bool(found.complete)
    np.testing.assert_array_equal(np.asarray(found.pairs).reshape(-1).view("<u2"), patterns)
    # As values: NaN payloads, infinities, signed zeros and subnormal values have their bits.
    values = np.asarray(found.pairs).reshape(-1).view("<u2").view(ml_dtypes.bfloat16)
    assert values.tobytes() == patterns.tobytes()


def test_the_expected_size_is_the_mean_of_exact_ones():
    rng = np.random.default_rng(11)
    code, lanes, n = code_of_symbols(np.array([5, 3, 1, 1])), 8, 3001
    lengths = np.asarray(code.lengths)
    sizes, expected = [], []
    for _ in range(60):
        symbols = rng.choice(4, size=n, p=[0.4, 0.3, 0.2, 0.1]).astype(np.uint8)
        sizes.append(huffman_streams.num_bits(huffman_streams.encode(jnp.asarray(symbols), code, lanes=lanes)))
        # The last step is filled up with shortest codewords.
        filled = 2 * lanes * huffman_streams.num_steps(n, lanes) - n
        mean = (lengths[symbols].sum() + filled * lengths.min()) / n
        expected.append(huffman_streams.expected_bits(n, mean, lanes=lanes))
    error = np.subtract(sizes, expected)
    assert abs(error.mean()) < 4 * error.std() / np.sqrt(len(error))
