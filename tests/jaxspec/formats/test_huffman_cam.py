import jax.numpy as jnp
import numpy as np
import pytest
from huffman_cam_samples import HAND_CODE, decode, encode_bank, random_code
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.formats import huffman, huffman_cam


def codewords(code):
    lengths, words = np.asarray(code.lengths), np.asarray(code.codewords)
    return {int(s): format(words[s], f"0{lengths[s]}b") for s in np.flatnonzero(lengths)}


def bit_string(words):
    return "".join(format(int(word), "032b") for word in np.asarray(words))


def decode_bit_string(bits, code, num_symbols):
    """Symbols and bits used, by growing each codeword bit by bit until it is in the dictionary."""
    symbol_of = {word: symbol for symbol, word in codewords(code).items()}
    symbols, place = [], 0
    for _ in range(num_symbols):
        end = place + 1
        while bits[place:end] not in symbol_of:
            end += 1
        symbols.append(symbol_of[bits[place:end]])
        place = end
    return symbols, place


def register_by_bits(bits, lengths, register_bits):
    """What a register reads in each cycle, from a string of its valid bits."""
    valid, address, reads = bits[:32], 32, []
    for length in lengths:
        assert len(valid) >= 31
        valid = valid[length:]
        read = length if register_bits == 32 else 32 * (len(valid) < 32)
        valid += bits[address : address + read].ljust(read, "0")
        address += read
        assert len(valid) <= register_bits
        reads.append(read)
    return reads


@pytest.mark.scheme_matrix
def test_stream_by_hand():
    # 30, 9, 4, 1, 9: 111 0 10 110 0, the first bit highest.
    stream = encode_bank(jnp.array([30, 9, 4, 1, 9], jnp.uint8), HAND_CODE, capacity_words=2)
    np.testing.assert_array_equal(stream.words, [0b1110101100 << 22, 0])
    assert int(stream.num_bits) == 10
    assert bool(stream.complete)
    run = decode(huffman_cam.build_cam(HAND_CODE), stream.words, num_symbols=5, register_bits=32)
    np.testing.assert_array_equal(run.symbols, [30, 9, 4, 1, 9])
    np.testing.assert_array_equal(run.bits_read, [3, 1, 2, 3, 1])
    assert (int(run.reads), int(run.num_bits)) == (6, 10)


def test_cam_holds_the_code():
    cam = huffman_cam.build_cam(HAND_CODE)
    np.testing.assert_array_equal(cam.symbols[:4], [1, 4, 9, 30])
    np.testing.assert_array_equal(cam.codewords[:4], [0b110, 0b10, 0b0, 0b111])
    np.testing.assert_array_equal(cam.lengths, [3, 2, 1, 3] + [0] * 28)
    assert cam.symbols.shape == (huffman_cam.CAM_ENTRIES,)
    assert cam.max_length == 5


@pytest.mark.scheme_matrix(2)
@pytest.mark.parametrize("register_bits", [32, 64])
@pytest.mark.parametrize("max_length", [5, 12, 31])
def test_decoder_does_what_bit_strings_do(register_bits, max_length):
    rng = np.random.default_rng(max_length)
    # A geometric law wants codewords of every length up to the limit.
    counts = np.maximum(2.0 ** (31 - np.arange(32)), 1).astype(np.int64)
    lengths = huffman.code_lengths(rng.permutation(counts), max_length=max_length)
    assert lengths.max() == max_length
    code = huffman.code_of_lengths(lengths, max_length=max_length)
    symbols = rng.integers(0, 32, size=517)
    expected = "".join(codewords(code)[s] for s in symbols.tolist())
    stream = encode_bank(jnp.asarray(symbols, jnp.uint8), code, capacity_words=len(expected) // 32 + 3)
    bits = bit_string(stream.words)
    assert bits == expected.ljust(len(bits), "0")
    assert int(stream.num_bits) == len(expected) == huffman.num_bits(np.bincount(symbols), lengths)
    assert decode_bit_string(bits, code, 517) == (symbols.tolist(), len(expected))
    run = decode(huffman_cam.build_cam(code), stream.words, num_symbols=517, register_bits=register_bits)
    np.testing.assert_array_equal(run.symbols, symbols)
    assert bool(run.matched.all())
    assert int(run.num_bits) == len(expected)
    reads = register_by_bits(bits, lengths[symbols].tolist(), register_bits)
    np.testing.assert_array_equal(run.bits_read, reads)
    assert int(run.reads) == 1 + np.count_nonzero(reads)


# Each number of symbols is compiled once.
@pytest.mark.scheme_matrix
@settings(max_examples=50)
@given(st.integers(0, 10**6), st.sampled_from([1, 45, 90]), st.sampled_from([32, 64]))
def test_any_symbols_come_back(seed, num_symbols, register_bits):
    rng = np.random.default_rng(seed)
    code = random_code(rng, max_length=9)
    symbols = jnp.asarray(rng.choice(np.flatnonzero(code.lengths), size=num_symbols), jnp.uint8)
    stream = encode_bank(symbols, code, capacity_words=num_symbols * 9 // 32 + 1)
    assert bool(stream.complete)
    bits = bit_string(stream.words)
    expected, used = decode_bit_string(bits, code, num_symbols)
    assert int(stream.num_bits) == used
    assert "1" not in bits[used:]
    np.testing.assert_array_equal(expected, symbols)
    cam = huffman_cam.build_cam(code)
    run = decode(cam, stream.words, num_symbols=num_symbols, register_bits=register_bits)
    np.testing.assert_array_equal(run.symbols, symbols)
