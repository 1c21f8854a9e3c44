import chex
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.formats import huffman_streams
from jaxspec.formats.huffman import code_lengths, code_of_lengths
from jaxspec.formats.huffman_streams import HuffmanStreams, code_of_symbols

#: How often each of 256 symbols occurs, by kind of code.
COUNTS = {
    "one symbol": np.eye(1, 256, 200, dtype=np.int64)[0],
    "all lengths": np.concatenate([np.zeros(31, np.int64), 1 << np.arange(13), np.zeros(212, np.int64)]),
    "all symbols": np.full(256, 3),
    "uneven": np.random.default_rng(0).geometric(0.02, size=256) - 1,
}

A, B, C, D = range(4)


@pytest.fixture(scope="module")
def encode(jit):
    return jit(huffman_streams.encode, static_argnames=("lanes", "capacity_words"))


@pytest.fixture(scope="module")
def decode(jit):
    return jit(huffman_streams.decode, static_argnames="num_symbols")


@pytest.fixture(scope="module")
def small_code():
    """A is 0, B is 10, C is 110, D is 111."""
    return code_of_symbols(np.array([5, 3, 1, 1]))


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


def by_lane(streams):
    words, starts = np.asarray(streams.words), np.asarray(streams.starts)
    return [words[start : start + count].tolist() for start, count in zip(starts, np.asarray(streams.word_counts))]


def test_one_lane_by_hand(encode, decode, small_code):
    # A B C D A, and an A that fills the third step: 0 10 110 111 0 0 = 0101 1011 1000.
    symbols = jnp.array([A, B, C, D, A], jnp.uint8)
    streams = encode(symbols, small_code, lanes=1)
    assert by_lane(streams) == [[0x5B800000]]
    found = decode(streams, huffman_streams.entries(small_code), num_symbols=5)
    assert found.pairs.tolist() == [A, B, C, D, A]
    assert found.pairs.dtype == jnp.uint16
    assert bool(found.complete)


def test_two_lanes_by_hand(encode, decode, small_code):
    # Two by two: the first lane has A B and B D, the second C D and, to fill the step, A A.
    # 0 10 10 111 = 0101 0111 and 110 111 0 0 = 1101 1100.
    symbols = jnp.array([A, B, C, D, B, D], jnp.uint8)
    streams = encode(symbols, small_code, lanes=2)
    assert by_lane(streams) == [[0x57000000], [0xDC000000]]
    # Two words, and a count of 16 bits for each lane.
    assert huffman_streams.num_bits(streams) == 2 * 32 + 2 * 16
    assert decode(streams, huffman_streams.entries(small_code), num_symbols=6).pairs.tolist() == symbols.tolist()


def test_a_codeword_across_two_words_by_hand(encode, small_code):
    # 31 A and then D: 31 zeros and a one, then 11 in the next word. 33 symbols and one A that fills the step.
    symbols = jnp.array([A] * 31 + [D, C], jnp.uint8)
    assert by_lane(encode(symbols, small_code, lanes=1)) == [[1, 0b11110 << 27]]


def test_table_by_hand(small_code):
    # The upper half is the length; 12 bits that begin with 0, 10, 110 and 111.
    table = np.asarray(huffman_streams.entries(small_code, shift=7))
    expected = np.repeat(
        [1 << 16 | A << 7, 2 << 16 | B << 7, 3 << 16 | C << 7, 3 << 16 | D << 7], [2048, 1024, 512, 512]
    )
    np.testing.assert_array_equal(table, expected)


@settings(max_examples=80)
@given(
    # One, fewer symbols than lanes, a last step that is not full, long lanes.
    shape=st.sampled_from([(1, 1), (3, 8), (77, 2), (100, 8), (1001, 1)]),
    kind=st.sampled_from(sorted(COUNTS)),
    runs=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_round_trip_against_plain_python(encode, decode, shape, kind, runs, seed):
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
    streams = encode(jnp.asarray(symbols), code, lanes=lanes)
    expected = streams_in_plain_python(symbols, code, lanes)
    assert by_lane(streams) == expected
    total = sum(map(len, expected))
    assert not np.asarray(streams.words)[total:].any()
    assert huffman_streams.num_bits(streams) == 32 * total + 16 * lanes
    found = decode(streams, huffman_streams.entries(code), num_symbols=n)
    np.testing.assert_array_equal(found.pairs, symbols)
    assert bool(found.complete)


def test_symbols_of_16_bits_and_codewords_of_16_bits(encode, decode):
    # Powers of two as counts give a codeword of each length; the last two of 17 symbols have 16 bits.
    counts = np.zeros(700, np.int64)
    counts[np.arange(17) * 43] = 1 << np.arange(17)
    code = code_of_lengths(code_lengths(counts, max_length=16), max_length=16)
    assert np.asarray(code.lengths).max() == 16
    # Rarest first, so that two of the longest meet in one step.
    symbols = (np.arange(51) % 17 * 43).astype(np.uint16)
    streams = encode(jnp.asarray(symbols), code, lanes=2)
    assert by_lane(streams) == streams_in_plain_python(symbols, code, 2)
    np.testing.assert_array_equal(decode(streams, huffman_streams.entries(code), num_symbols=51).pairs, symbols)


def test_longer_codewords_are_refused():
    lengths = np.array([1, 2, 3, 17], np.uint8)
    with pytest.raises(ValueError, match="at most 16 are allowed"):
        huffman_streams.encode(jnp.zeros(3, jnp.uint8), code_of_lengths(lengths, max_length=17))


def test_a_huge_run_costs_a_bit_per_symbol(encode, decode):
    code, n = code_of_symbols(COUNTS["one symbol"]), 100_001
    streams = encode(jnp.full(n, 200, jnp.uint8), code)
    lanes = huffman_streams.num_lanes(n)
    assert streams.word_counts.shape == (lanes,) == (16,)
    # Each lane has the symbols of all steps, one bit each.
    steps = huffman_streams.num_steps(n, lanes)
    assert huffman_streams.num_bits(streams) == lanes * (32 * -(-2 * steps // 32) + 16)
    found = decode(streams, huffman_streams.entries(code), num_symbols=n)
    assert bool(found.complete)
    np.testing.assert_array_equal(found.pairs, 200)


def test_lanes_grow_with_the_tensor():
    assert [huffman_streams.num_lanes(n) for n in (0, 1, 8191, 8192, 50_000, 1 << 22, 1 << 40)] == [
        1,
        1,
        1,
        2,
        8,
        1024,
        1024,
    ]
    # A lane always has its 4096 symbols, and never the 2^16 words that its stored count could not tell.
    for n in np.random.default_rng(2).integers(1, 1 << 22, size=200).tolist():
        lanes = huffman_streams.num_lanes(n)
        assert n // lanes >= 4096 or lanes == 1
        assert 2 * huffman_streams.num_steps(n, lanes) * 12 / 32 < 1 << 16
    assert huffman_streams.num_steps(0, 4) == 0
    assert [huffman_streams.num_steps(n, 4) for n in (1, 8, 9)] == [1, 1, 2]


def test_nothing_encodes_to_nothing(encode, small_code):
    for lanes in (None, 8):
        streams = encode(jnp.zeros(0, jnp.uint8), small_code, lanes=lanes)
        assert streams.word_counts.tolist() == [0] * (lanes or 1)
        assert streams.words.size == 0
        assert huffman_streams.num_bits(streams) == 16 * (lanes or 1)


@pytest.mark.parametrize("capacity_words", [3, None])
def test_nothing_decodes_to_nothing(encode, decode, small_code, capacity_words):
    streams = encode(jnp.zeros(0, jnp.uint8), small_code, lanes=1, capacity_words=capacity_words)
    found = decode(streams, huffman_streams.entries(small_code), num_symbols=0)
    assert found.pairs.shape == (0,)
    assert bool(found.complete)


def test_what_does_not_fit_is_lost(encode, decode):
    code = code_of_symbols(COUNTS["all symbols"])
    # 8 bits each: 100 symbols in 2 lanes of 50 are 13 words each (the last one half full).
    symbols = np.arange(100, dtype=np.uint8)
    whole = encode(jnp.asarray(symbols), code, lanes=2)
    cut = encode(jnp.asarray(symbols), code, lanes=2, capacity_words=20)
    assert cut.word_counts.tolist() == whole.word_counts.tolist() == [13, 13]
    # The word counts tell that words are missing.
    assert cut.words.tolist() == whole.words.tolist()[:20]
    found = decode(cut, huffman_streams.entries(code), num_symbols=100)
    # Whatever decoding makes of it, the first lane and the first words of the second are there.
    assert found.pairs.tolist()[:52] == symbols.tolist()[:52]
    assert found.pairs.tolist() != symbols.tolist()
    # Just enough is enough.
    exact = encode(jnp.asarray(symbols), code, lanes=2, capacity_words=26)
    assert decode(exact, huffman_streams.entries(code), num_symbols=100).pairs.tolist() == symbols.tolist()


@pytest.fixture(scope="module")
def intact(encode):
    """300 symbols in two lanes, of a code with all lengths."""
    counts = COUNTS["all lengths"]
    code = code_of_symbols(counts)
    symbols = np.random.default_rng(5).choice(256, size=300, p=counts / counts.sum()).astype(np.uint8)
    return symbols, code, encode(jnp.asarray(symbols), code, lanes=2)


@pytest.mark.parametrize("change", [(1, 0), (0, 1), (-1, 1), (7, -3), (2**31, 0)])
def test_a_wrong_word_count_is_told(decode, intact, change):
    _, code, streams = intact
    counts = (np.asarray(streams.word_counts).astype(np.int64) + change).astype(np.uint32)
    found = decode(HuffmanStreams(streams.words, jnp.asarray(counts)), huffman_streams.entries(code), num_symbols=300)
    # A lane whose start is right still ends where it did, which is not where it should now.
    assert not bool(found.complete)


def test_damaged_streams_give_wrong_symbols_or_are_told(decode, intact):
    symbols, code, streams = intact
    table, rng = huffman_streams.entries(code), np.random.default_rng(6)
    used, told = int(streams.word_counts.sum()), 0
    for _ in range(200):
        words = np.asarray(streams.words).copy()
        words[rng.integers(used)] ^= np.uint32(1 << rng.integers(32))
        found = decode(HuffmanStreams(jnp.asarray(words), streams.word_counts), table, num_symbols=300)
        assert found.pairs.shape == (300,)
        # The bits behind a lane's last codeword mean nothing; all others do.
        changed = found.pairs.tolist() != symbols.tolist()
        assert changed or by_lane(HuffmanStreams(jnp.asarray(words), streams.word_counts)) != by_lane(streams)
        told += not bool(found.complete)
    assert told > 20


@pytest.mark.parametrize(
    "lengths",
    [
        np.zeros(256, np.uint8),  # no codeword at all: nothing moves on
        np.eye(1, 256, 9, dtype=np.uint8)[0],  # one codeword of one bit: half of all windows match nothing
        np.eye(1, 256, 9, dtype=np.uint8)[0] * 12,
        np.full(256, 8, np.uint8),
        np.concatenate([np.full(255, 12), [1]]).astype(np.uint8),
    ],
)
def test_another_table_is_told(decode, intact, lengths):
    symbols, _, streams = intact
    found = decode(streams, huffman_streams.entries(code_of_lengths(lengths)), num_symbols=300)
    assert not bool(found.complete)
    assert found.pairs.tolist() != symbols.tolist()


def test_another_number_of_symbols_is_told(decode, intact):
    _, code, streams = intact
    table = huffman_streams.entries(code)
    for num_symbols in (101, 999):
        assert not bool(decode(streams, table, num_symbols=num_symbols).complete)


def test_symbols_without_codeword_take_no_bits(encode, small_code):
    # 6 and 4 are not coded. 0 10, and an A that fills the step.
    code = code_of_lengths(np.array([1, 2, 3, 3, 0, 0, 0], np.uint8))
    streams = encode(jnp.array([A, 6, B, 4, 4], jnp.uint8), code, lanes=1)
    assert by_lane(streams) == [[0b0100 << 28]]
    # Nor do those that the alphabet does not have.
    streams = encode(jnp.array([A, 200, B, 7, 255], jnp.uint8), code, lanes=1)
    assert by_lane(streams) == [[0b0100 << 28]]


def test_wrong_static_values_are_refused(small_code):
    with pytest.raises(ValueError, match="lanes is 0"):
        huffman_streams.encode(jnp.zeros(3, jnp.uint8), small_code, lanes=0)
    many = jax.ShapeDtypeStruct((2**30,), jnp.uint8)
    with pytest.raises(ValueError, match=r"402653184 words.*split the tensor"):
        jax.eval_shape(lambda symbols: huffman_streams.encode(symbols, small_code), many)
    # In less than 4 bits each they do fit.
    room = jax.eval_shape(lambda s: huffman_streams.encode(s, small_code, capacity_words=2**27 - 1), many)
    assert room.words.shape == (2**27 - 1,)
    streams = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), room)
    decode = lambda s: huffman_streams.decode_pairs(s, huffman_streams.entries(small_code), steps=5)
    assert jax.eval_shape(decode, streams).pairs.shape == (5, 1024)
    with pytest.raises(ValueError, match=r"134217728 words"):
        jax.eval_shape(decode, streams.replace(words=jax.ShapeDtypeStruct((2**27,), jnp.uint32)))


@pytest.mark.parametrize("skew", [False, True])
def test_every_bfloat16_pattern(jit, encode, skew):
    """All exponents with all signs and mantissas; and all of them once more among many of one exponent."""
    patterns = np.arange(1 << 16, dtype=np.uint16)
    if skew:
        patterns = np.concatenate([patterns, np.full(1 << 16, 0xBE4D, np.uint16)])
        patterns = np.random.default_rng(1).permutation(patterns)
    exponents = (patterns >> 7 & 0xFF).astype(np.uint8)
    code = code_of_symbols(np.bincount(exponents, minlength=256))
    lanes = huffman_streams.num_lanes(patterns.size)
    streams = encode(jnp.asarray(exponents), code, lanes=lanes)
    beside = (patterns >> 15 << 7 | patterns & 0x7F).astype(np.uint8).view("<u2").reshape(-1, lanes)
    found = jit(huffman_streams.decode_bfloat16)(streams, huffman_streams.entries(code, shift=7), jnp.asarray(beside))
    assert bool(found.complete)
    np.testing.assert_array_equal(np.asarray(found.pairs).reshape(-1).view("<u2"), patterns)
    # As values: NaN payloads, infinities, signed zeros and subnormal values have their bits.
    values = np.asarray(found.pairs).reshape(-1).view("<u2").view(ml_dtypes.bfloat16)
    assert values.tobytes() == patterns.tobytes()


def test_under_vmap(jit, small_code):
    symbols = np.random.default_rng(4).integers(4, size=(3, 29)).astype(np.uint8)
    streams = jit(jax.vmap(lambda row: huffman_streams.encode(row, small_code, lanes=2)))(jnp.asarray(symbols))
    for row, words, counts in zip(symbols, streams.words, streams.word_counts):
        assert by_lane(HuffmanStreams(words, counts)) == streams_in_plain_python(row, small_code, 2)
    table = huffman_streams.entries(small_code)
    found = jit(jax.vmap(lambda stream: huffman_streams.decode(stream, table, num_symbols=29)))(streams)
    np.testing.assert_array_equal(found.pairs, symbols)
    assert found.complete.tolist() == [True] * 3


def test_new_values_do_not_trace_anew(jit):
    rng = np.random.default_rng(8)

    @chex.assert_max_traces(n=1)
    def encode(symbols, code):
        return huffman_streams.encode(symbols, code, lanes=2)

    @chex.assert_max_traces(n=1)
    def decode(streams, table):
        return huffman_streams.decode(streams, table, num_symbols=45)

    encode, decode = jit(encode), jit(decode)
    for counts in COUNTS.values():
        code = code_of_symbols(counts)
        symbols = rng.choice(np.flatnonzero(counts), size=45).astype(np.uint8)
        found = decode(encode(jnp.asarray(symbols), code), huffman_streams.entries(code))
        np.testing.assert_array_equal(found.pairs, symbols)


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
