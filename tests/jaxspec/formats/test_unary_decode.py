import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.formats.unary import Codebook, UnaryStream, build_codebook, encode
from jaxspec.formats.unary_decode import decode, decode_lanes

pytestmark = pytest.mark.scheme_matrix

#: Symbols are not their ranks: rank r is symbol 255 − r.
REVERSED = Codebook(
    symbols=jnp.arange(255, -1, -1, dtype=jnp.uint8),
    rank_of=jnp.arange(255, -1, -1, dtype=jnp.uint8),
    size=jnp.int32(256),
)

#: Streams of one capacity share what is compiled, and compiling is what these tests spend their time on.
CAPACITY = 300

quick_decode, quick_decode_lanes = (
    jax.jit(
        decoder,
        static_argnames=("num_symbols", width),
    )
    for decoder, width in ((decode, "chunk_bits"), (decode_lanes, "num_lanes"))
)
quick_encode = jax.jit(encode, static_argnames="capacity_bytes")
quick_codebook = jax.jit(build_codebook)
DECODERS = {
    "chunks of 8": quick_decode,
    "chunks of 5": functools.partial(quick_decode, chunk_bits=5),
    "lanes": quick_decode_lanes,
    "3 lanes": functools.partial(quick_decode_lanes, num_lanes=3),
}
each_decoder = pytest.mark.parametrize("decoder", DECODERS.values(), ids=DECODERS.keys())


def stream_of(bits, *, capacity=CAPACITY):
    """A stream from its bits as text."""
    padded = bits.ljust(8 * capacity, "0")
    data = [int(padded[i : i + 8], 2) for i in range(0, len(padded), 8)]
    return UnaryStream(jnp.array(data, jnp.uint8), jnp.int32(len(bits)))


def stream_of_ranks(ranks, **kwargs):
    return stream_of("".join("0" * rank + "1" for rank in ranks), **kwargs)


def ranks_in(bits):
    """Serial decoding: what a stream means."""
    return [len(zeros) for zeros in bits.split("1")[:-1]]


def listing_as_printed(bits, numel, width=8):
    """Cassandra's Algorithm 1, line by line; ranks in place of the code book's symbols.

    Only the counter l of its last loop is made to advance, which the listing forgets: it would never end.
    """
    bits = bits.ljust(-(-len(bits) // width) * width, "0")
    chunks = [bits[i : i + width] for i in range(0, len(bits), width)]
    output, counts, reorganized, num_ones = [], [], [], []
    for chunk in chunks:
        count, emitted = 0, []
        reorganized.append(int(chunk[width - 1]))
        num_ones.append(chunk.count("1"))
        for j in range(width):
            if chunk[j] == "0":
                count += 1
            else:
                emitted.append(count)
                count = 0
        output.append(emitted)
        counts.append(count)
    total = 0
    for k in range(len(chunks)):
        if reorganized[k] == 0:
            total += counts[k]
        else:
            output[k][0] += total
            total = 0
    ranks = []
    for part in range(len(chunks)):
        for m in range(num_ones[part]):
            ranks.append(output[part][m])
            if len(ranks) > numel:
                return ranks
    return ranks


@each_decoder
def test_by_hand(decoder):
    # Ranks 9, 6, 0 are 0000000001 0000001 1, in bytes 00000000 01000000 11: the second byte has a one and ends in a zero.
    stream = stream_of_ranks([9, 6, 0], capacity=3)
    assert np.asarray(stream.data).tolist() == [0x00, 0x40, 0xC0]
    decoded = decoder(stream, REVERSED, num_symbols=3)
    assert np.asarray(decoded.symbols).tolist() == [246, 249, 255]
    assert decoded.symbols.dtype == jnp.uint8
    assert decoded.complete


def test_the_printed_listing_loses_the_carry():
    # Neither of the three bytes ends in a one, so that no symbol ever receives the zeros before its byte.
    bits = "0000000001" + "0000001" + "1"
    assert ranks_in(bits) == [9, 6, 0]
    assert listing_as_printed(bits, 3) == [1, 0, 0]


@pytest.mark.parametrize("chunk_bits", [1, 13, 64])
def test_every_chunk_width_finds_the_same_symbols(chunk_bits):
    # All ranks, long and short in turn, in a stream whose length (4 bytes to spare) no width above 1 divides.
    rng = np.random.default_rng(chunk_bits)
    ranks = np.concatenate([rng.permutation(256)[:70], rng.integers(3, size=41), [255, 0, 254]])
    stream = stream_of_ranks(ranks, capacity=(sum(ranks) + len(ranks)) // 8 + 5)
    decoded = quick_decode(stream, REVERSED, num_symbols=len(ranks), chunk_bits=chunk_bits)
    np.testing.assert_array_equal(decoded.symbols, 255 - ranks)
    assert decoded.complete


@pytest.mark.parametrize(("num_lanes", "num_symbols"), [(1, 45), (300, 997), (1024, 1)])
def test_every_number_of_lanes_finds_the_same_symbols(num_lanes, num_symbols):
    # Lanes enter at any bit of a byte, blocks of the look-up are crossed, and some lanes have nothing to do.
    ranks = np.random.default_rng(num_lanes).geometric(0.3, size=num_symbols) - 1
    ranks[num_symbols // 2] = 255
    stream = stream_of_ranks(ranks, capacity=900)
    decoded = quick_decode_lanes(stream, REVERSED, num_symbols=num_symbols, num_lanes=num_lanes)
    np.testing.assert_array_equal(decoded.symbols, 255 - ranks)
    assert decoded.complete


@settings(max_examples=15)
@given(size=st.sampled_from([3, 130]), distinct=st.sampled_from([1, 2, 40, 256]), seed=st.integers(0, 2**32 - 1))
def test_decoders_invert_the_encoder(size, distinct, seed):
    rng = np.random.default_rng(seed)
    symbols = jnp.asarray(rng.choice(rng.permutation(256)[:distinct], size=size), jnp.uint8)
    codebook = quick_codebook(jnp.asarray(np.bincount(symbols, minlength=256)))
    stream = quick_encode(symbols, codebook, capacity_bytes=CAPACITY if size < 130 else 2200)
    for decoder in (DECODERS["chunks of 5"], DECODERS["3 lanes"]):
        decoded = decoder(stream, codebook, num_symbols=size)
        np.testing.assert_array_equal(decoded.symbols, symbols)
        assert decoded.complete


@pytest.mark.parametrize("decoder", [DECODERS["chunks of 5"], DECODERS["3 lanes"]], ids=["chunks", "lanes"])
@pytest.mark.parametrize(
    ("what", "stream", "size", "found"),
    [
        ("one codeword too few", stream_of_ranks([2, 40]), 256, [253, 215, 0]),
        ("as many ones, then zeros", stream_of("001" + "01" + "1" + "000"), 256, [253, 254, 255]),
        ("a rank that the codebook lacks", stream_of_ranks([2, 40, 1]), 40, [253, 215, 254]),
        ("a rank that no codebook has", stream_of_ranks([2, 256, 1]), 256, [253, 0, 254]),
        (
            "cut by its capacity",
            stream_of_ranks([2, 40, 1])._replace(num_bits=jnp.int32(8 * CAPACITY + 1)),
            256,
            [253, 215, 254],
        ),
        ("cut inside of a codeword", stream_of("001" + "01" + "0000"), 256, [253, 254, 0]),
        ("no bytes", stream_of("", capacity=0), 256, [0, 0, 0]),
        ("a negative size", stream_of_ranks([2, 40, 1])._replace(num_bits=jnp.int32(-3)), 256, [0, 0, 0]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_damaged_stream_is_reported(decoder, what, stream, size, found):
    decoded = decoder(stream, REVERSED._replace(size=jnp.int32(size)), num_symbols=3)
    assert np.asarray(decoded.symbols).tolist() == found
    assert not decoded.complete
