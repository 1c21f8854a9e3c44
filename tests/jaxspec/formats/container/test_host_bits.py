"""What NumPy writes on the host is what compiled programs read, and the other way round."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.formats import bit_packing, unary
from jaxspec.formats.container import host_bits
from jaxspec.formats.container.host_bits import MOST_WIDTH, pack, read_unary, unpack, write_unary


@pytest.mark.parametrize("width", range(1, MOST_WIDTH + 1))
def test_fields_of_every_width(width):
    values = np.random.default_rng(width).integers(1 << 16, size=1003).astype(np.uint16)
    whole = np.asarray(bit_packing.pack(jnp.asarray(values), width=width))
    for count in (1, 7, 8, 31, 33, 64, 1003):
        words = pack(values[:count], width)
        assert words.dtype == np.uint32
        assert words.size == bit_packing.num_words(count, width)
        np.testing.assert_array_equal(words[: count * width // 32], whole[: count * width // 32])
        np.testing.assert_array_equal(unpack(words, width, count), values[:count] & ((1 << width) - 1))
    # The last word is padded with zeros, as there.
    np.testing.assert_array_equal(pack(values, width), whole)


@pytest.mark.parametrize("piece", [5, 1 << 16])
@pytest.mark.parametrize("symbols", [1, 3, 256])
def test_unary_codewords(symbols, piece, monkeypatch):
    """In pieces that end within bytes, and codewords longer than a piece of bytes."""
    monkeypatch.setattr(host_bits, "_SYMBOLS", piece)
    monkeypatch.setattr(host_bits, "_BYTES", piece)
    found = np.random.default_rng(symbols).integers(symbols, size=300).astype(np.uint8)
    codebook = unary.build_codebook(jnp.asarray(np.bincount(found, minlength=256)))
    ranks = np.asarray(codebook.rank_of)
    stream = unary.encode(jnp.asarray(found), codebook, capacity_bytes=10_000)
    data = write_unary(found, ranks.astype(np.uint16) + 1)
    assert data.size == -(-int(stream.num_bits) // 8)
    np.testing.assert_array_equal(data, np.asarray(stream.data)[: data.size])
    read = read_unary(data, found.size)
    np.testing.assert_array_equal(read.ranks, ranks[found])
    assert read.largest == ranks[found].max()
