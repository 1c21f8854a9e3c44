"""Huffman streams that are empty, full, damaged or read with the wrong table."""

import jax.numpy as jnp
import numpy as np
import pytest
from huffman_streams_samples import COUNTS, by_lane

from jaxspec.formats import huffman_streams
from jaxspec.formats.huffman import code_of_lengths
from jaxspec.formats.huffman_streams import HuffmanStreams, code_of_symbols


@pytest.mark.scheme_matrix
def test_what_does_not_fit_is_lost(encode_streams, decode_streams):
    code = code_of_symbols(COUNTS["all symbols"])
    # 8 bits each: 100 symbols in 2 lanes of 50 are 13 words each (the last one half full).
    symbols = np.arange(100, dtype=np.uint8)
    whole = encode_streams(jnp.asarray(symbols), code, lanes=2)
    cut = encode_streams(jnp.asarray(symbols), code, lanes=2, capacity_words=20)
    assert cut.word_counts.tolist() == whole.word_counts.tolist() == [13, 13]
    # The word counts tell that words are missing.
    assert cut.words.tolist() == whole.words.tolist()[:20]
    found = decode_streams(cut, huffman_streams.entries(code), num_symbols=100)
    # Whatever decoding makes of it, the first lane and the first words of the second are there.
    assert found.pairs.tolist()[:52] == symbols.tolist()[:52]
    assert found.pairs.tolist() != symbols.tolist()
    # Just enough is enough.
    exact = encode_streams(jnp.asarray(symbols), code, lanes=2, capacity_words=26)
    assert decode_streams(exact, huffman_streams.entries(code), num_symbols=100).pairs.tolist() == symbols.tolist()


@pytest.fixture(scope="module")
def intact(encode_streams):
    """300 symbols in two lanes, of a code with all lengths."""
    counts = COUNTS["all lengths"]
    code = code_of_symbols(counts)
    symbols = np.random.default_rng(5).choice(256, size=300, p=counts / counts.sum()).astype(np.uint8)
    return symbols, code, encode_streams(jnp.asarray(symbols), code, lanes=2)


@pytest.mark.parametrize("change", [(1, 0), (0, 1), (-1, 1), (7, -3), (2**31, 0)])
def test_a_wrong_word_count_is_reported(decode_streams, intact, change):
    _, code, streams = intact
    counts = (np.asarray(streams.word_counts).astype(np.int64) + change).astype(np.uint32)
    found = decode_streams(
        HuffmanStreams(streams.words, jnp.asarray(counts)), huffman_streams.entries(code), num_symbols=300
    )
    # A lane whose start is right still ends where it did, which is not where it should now.
    assert not bool(found.complete)


def test_damaged_streams_give_wrong_symbols_or_are_reported(decode_streams, intact):
    symbols, code, streams = intact
    table, rng = huffman_streams.entries(code), np.random.default_rng(6)
    used, told = int(streams.word_counts.sum()), 0
    for _ in range(200):
        words = np.asarray(streams.words).copy()
        words[rng.integers(used)] ^= np.uint32(1 << rng.integers(32))
        found = decode_streams(HuffmanStreams(jnp.asarray(words), streams.word_counts), table, num_symbols=300)
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
def test_another_table_is_reported(decode_streams, intact, lengths):
    symbols, _, streams = intact
    found = decode_streams(streams, huffman_streams.entries(code_of_lengths(lengths)), num_symbols=300)
    assert not bool(found.complete)
    assert found.pairs.tolist() != symbols.tolist()
