"""Columns of Huffman decoders: every pattern survives, damage is told, the expected size is the size."""

from functools import partial

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from huffman_cam_samples import HAND_CODE, encode_bank

from jaxspec.formats import huffman, huffman_cam, huffman_columns
from jaxspec.formats.patterns import BFLOAT16, FLOAT16

pytestmark = pytest.mark.scheme_matrix

BITS = {FLOAT16: (lambda x: x.astype(np.float16)), BFLOAT16: (lambda x: x.astype(ml_dtypes.bfloat16))}


def gaussian_patterns(number_format, shape, seed=0):
    """Weights with rows of different scales, and behind them every pattern once, so that each symbol has a codeword."""
    rng = np.random.default_rng(seed)
    values = 0.013 * np.exp(0.3 * rng.standard_normal((shape[0], 1))) * rng.standard_normal(shape)
    sample = BITS[number_format](values.astype(np.float32)).view(np.uint16).reshape(-1)
    return np.concatenate([sample, np.arange(1 << 16, dtype=np.uint16)])


GROUPS = {FLOAT16: [(10, 5), (5, 5), (0, 5)], BFLOAT16: [(11, 4), (7, 4)]}


RAW_BITS = {FLOAT16: 1, BFLOAT16: 8}


def group_counts(patterns, number_format):
    """Occurrences in each coded group, by shifts of its place and masks of its width."""
    groups = [((patterns >> place) & ((1 << width) - 1), 1 << width) for place, width in GROUPS[number_format]]
    return [np.bincount(group.reshape(-1), minlength=size) for group, size in groups]


@pytest.mark.parametrize("number_format", [FLOAT16, BFLOAT16], ids=lambda f: f.name)
def test_every_pattern_comes_back(number_format):
    patterns = gaussian_patterns(number_format, (23, 13))
    codes = huffman_columns.column_codes(patterns, number_format=number_format)
    cams = [huffman_cam.build_cam(code) for code in codes]
    # 299 weights and 65,536 patterns: 45 columns of 1463.
    columns = np.random.default_rng(1).permutation(patterns).reshape(45, 1463)
    encode = partial(huffman_columns.encode_column, codes=codes, number_format=number_format, capacity_words=400)
    column = jax.jit(jax.vmap(encode))(jnp.asarray(columns))
    used = np.stack([bank.num_bits for bank in column.banks], axis=-1)
    coded = sum(
        huffman.num_bits(count, code.lengths) for count, code in zip(group_counts(patterns, number_format), codes)
    )
    expected_bits = RAW_BITS[number_format] * patterns.size + coded
    assert huffman_columns.num_bits(column, number_format=number_format) == expected_bits
    for register_bits, reads in ((32, np.full_like(used, 1464)), (64, 1 + -(-used // 32))):
        run_column = partial(
            huffman_columns.decode_column, cams=cams, number_format=number_format, register_bits=register_bits
        )
        run = jax.jit(jax.vmap(run_column))(column)
        np.testing.assert_array_equal(run.bits, columns)
        assert run.bits.dtype == jnp.uint16
        assert bool(run.valid.all())
        np.testing.assert_array_equal(run.reads, reads)


@pytest.fixture(scope="module")
def damaged():
    """A sound column, its decoders, and what may be done to a bank."""
    bits = gaussian_patterns(FLOAT16, (4, 31))[:124]
    codes = huffman_columns.column_codes(bits)
    column = jax.jit(partial(huffman_columns.encode_column, codes=codes, capacity_words=21))(jnp.asarray(bits))
    run_column = jax.jit(partial(huffman_columns.decode_column, cams=[huffman_cam.build_cam(code) for code in codes]))
    replace = lambda bank, **new: column._replace(
        banks=tuple(b._replace(**new) if i == bank else b for i, b in enumerate(column.banks))
    )
    return bits, column, run_column, replace


@pytest.mark.parametrize("bank", range(3))
def test_a_corrupted_stream_is_flagged(damaged, bank):
    bits, column, run_column, replace = damaged
    sound = run_column(column)
    assert bool(sound.valid)
    np.testing.assert_array_equal(sound.bits, bits)
    words = column.banks[bank].words
    # Zeroed from the first word on, every symbol is that of the shortest codewords.
    assert not run_column(replace(bank, words=jnp.zeros_like(words))).valid
    assert not run_column(replace(bank, num_bits=column.banks[bank].num_bits + 1)).valid
    assert not run_column(replace(bank, complete=jnp.bool_(False))).valid
    # A bit in a bank is one in its group only.
    flipped = run_column(replace(bank, words=words.at[1].set(words[1] ^ jnp.uint32(1 << 13)))).bits
    assert np.any(np.asarray(flipped) != bits)
    assert np.all((np.asarray(flipped) ^ bits) & np.uint16(0xFFFF ^ (0x1F << (10 - 5 * bank))) == 0)


def test_what_cannot_be_written_is_flagged():
    symbols = jnp.array([30, 9, 4, 1] * 9, jnp.uint8)
    # 9 x (3 + 1 + 2 + 3) = 81 bits: three words are enough, two are not.
    assert bool(encode_bank(symbols, HAND_CODE, capacity_words=3).complete)
    short = encode_bank(symbols, HAND_CODE, capacity_words=2)
    assert (int(short.num_bits), bool(short.complete)) == (81, False)
    np.testing.assert_array_equal(short.words, encode_bank(symbols, HAND_CODE, capacity_words=3).words[:2])
    for stranger in (7, 200):
        assert not encode_bank(symbols.at[5].set(stranger), HAND_CODE, capacity_words=3).complete


@pytest.mark.parametrize("number_format", [FLOAT16, BFLOAT16], ids=lambda f: f.name)
def test_expected_bits_are_those_of_the_codes(number_format):
    bits = gaussian_patterns(number_format, (19, 41))[: 19 * 41]
    codes = huffman_columns.column_codes(bits, number_format=number_format, max_length=6)
    counts = group_counts(bits, number_format)
    mean = jax.jit(partial(huffman_columns.expected_bits, number_format=number_format, max_length=6))
    coded = sum(huffman.mean_length(count, code.lengths) for count, code in zip(counts, codes))
    found = mean([count.astype(np.float32) for count in counts])
    np.testing.assert_allclose(found, RAW_BITS[number_format] + coded, rtol=1e-5)


def test_gradient_of_expected_bits(check_gradient):
    counts = [jnp.array([9.0, 4.1, 1.3, 0.6]), jnp.array([1.0, 1.1, 3.2])]
    check_gradient(partial(huffman_columns.expected_bits, number_format=BFLOAT16, max_length=3), counts)
