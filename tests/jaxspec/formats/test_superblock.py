import collections

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.formats import bitmap, superblock, unary
from jaxspec.formats.superblock import Layout, read_order

pytestmark = pytest.mark.scheme_matrix

ordered = jax.jit(read_order, static_argnames=("layout", "num_blocks"))
packed_by = jax.jit(superblock.pack, static_argnames="layout")
unpacked_by = jax.jit(superblock.unpack, static_argnames=("layout", "stream_bytes"))

GROUP = 16
MANTISSA_BITS = 3


def as_bytes(text):
    """Bits as text, to bytes."""
    padded = text.ljust(-(-len(text) // 8) * 8, "0")
    return jnp.array([int(padded[i : i + 8], 2) for i in range(0, len(padded), 8)], jnp.uint8)


class Reader:
    """A decoder that knows what hardware knows: the layout, the blocks of each type, the code book, and what it has read."""

    def __init__(self, memory, layout, blocks, ranking):
        self.memory, self.layout, self.ranking = list(memory), layout, ranking
        self.left, self.buffers, self.slot, self.starved = list(blocks), [""] * 3, 0, 0

    def next_block(self):
        for _ in range(len(self.layout.slots)):
            kind = self.layout.slots[self.slot]
            self.slot = (self.slot + 1) % len(self.layout.slots)
            if self.left[kind] and len(self.buffers[kind]) <= 8 * self.layout.limit_bytes:
                self.receive(kind)
                return
        # Everything is over its limit: the first type in turn that the group is waiting for.
        for turn in range(len(self.layout.slots)):
            slot = (self.slot + turn) % len(self.layout.slots)
            kind = self.layout.slots[slot]
            if self.missing(kind):
                self.starved += 1
                self.slot = (slot + 1) % len(self.layout.slots)
                self.receive(kind)
                return
        raise AssertionError("the decoder waits for ever")

    def receive(self, kind):
        self.left[kind] -= 1
        self.buffers[kind] += "".join(f"{byte:08b}" for byte in self.memory.pop(0).tolist())

    def missing(self, kind):
        """Whether the next group lacks data of a type; the bitmap says how much it needs of the others."""
        kept = self.buffers[0][:GROUP].count("1")
        have = (len(self.buffers[0]), self.buffers[1].count("1"), len(self.buffers[2]))
        return have[kind] < (GROUP, kept, MANTISSA_BITS * kept)[kind]

    def next_group(self):
        while (group := self.try_group()) is None:
            self.next_block()
        return group

    def try_group(self):
        """Kept values of the next group as (place, exponent, mantissa), once all of its data are there."""
        bits, exponents, mantissas = self.buffers
        if any(map(self.missing, range(3))):
            return None
        places = [place for place, bit in enumerate(bits[:GROUP]) if bit == "1"]
        codewords = exponents.split("1", len(places))
        cut = MANTISSA_BITS * len(places)
        self.buffers = [bits[GROUP:], codewords[-1], mantissas[cut:]]
        return [
            (place, self.ranking[len(zeros)], int(mantissas[MANTISSA_BITS * i :][:MANTISSA_BITS], 2))
            for i, (place, zeros) in enumerate(zip(places, codewords))
        ]


@pytest.mark.parametrize("limit_bytes", [6, 40])
def test_a_reader_that_knows_no_order_decodes_what_the_writer_packed(limit_bytes):
    # 60 groups whose share of kept values and whose spread of exponents vary, so that the streams run fast and slow.
    rng = np.random.default_rng(limit_bytes)
    spread = np.exp(rng.normal(0, 1.5, size=(60, 1)))
    values = (rng.standard_normal((60, GROUP)) ** 3 * spread).astype(ml_dtypes.bfloat16)
    mask = rng.random((60, GROUP)) < rng.random((60, 1))
    exponents = ((values.view(np.uint16) >> 7) & 0xFF).astype(np.uint8)
    mantissas = rng.integers(1 << MANTISSA_BITS, size=mask.shape)
    counts = np.bincount(exponents[mask], minlength=256)
    ranking = [symbol for symbol, _ in sorted(collections.Counter(exponents[mask].tolist()).items())]
    ranking.sort(key=lambda symbol: -counts[symbol])

    codebook = unary.build_codebook(jnp.asarray(counts))
    kept = jnp.asarray(exponents[mask])
    exponent_bits = int(unary.encoded_bits(kept, codebook))
    streams = (
        bitmap.pack(jnp.asarray(mask.reshape(-1))),
        unary.encode(kept, codebook, capacity_bytes=-(-exponent_bits // 8)).data,
        as_bytes("".join(f"{mantissa:03b}" for mantissa in mantissas[mask])),
    )
    lengths = np.vectorize(lambda exponent: ranking.index(exponent) + 1 if exponent in ranking else 0)(exponents)
    group_bits = np.stack([np.full(60, GROUP), np.sum(lengths * mask, axis=1), MANTISSA_BITS * np.sum(mask, axis=1)])
    stream_bits = group_bits.sum(axis=1).tolist()
    layout = superblock.choose_layout(stream_bits, block_bytes=8, blocks_per_superblock=7, limit_bytes=limit_bytes)
    num_blocks = superblock.num_blocks(stream_bits, layout)
    order = ordered(jnp.asarray(group_bits), layout, num_blocks=num_blocks)
    assert order.complete
    assert int(order.skips.sum()) > 0

    packed = packed_by(streams, order, layout=layout)
    assert 8 * packed.size == superblock.num_bits(stream_bits, layout)
    memory = np.asarray(packed).reshape(-1, layout.block_bytes)
    reader = Reader(memory, layout, [-(-bits // 64) for bits in stream_bits], ranking)
    for group in range(60):
        expected = [
            (place, int(exponents[group, place]), int(mantissas[group, place])) for place in np.flatnonzero(mask[group])
        ]
        assert reader.next_group() == expected
    # Groups of up to 38 bytes of exponents overrun the narrow buffer; the wide one can hold any.
    assert reader.starved == int(order.starved.sum())
    assert (reader.starved > 0) == (limit_bytes == 6)
    # All blocks but the padding of the last superblock have been read, each in its turn.
    assert len(reader.memory) == len(memory) - num_blocks

    unpacked = unpacked_by(packed, order, layout=layout, stream_bytes=tuple(stream.size for stream in streams))
    for stream, back in zip(streams, unpacked):
        np.testing.assert_array_equal(back, stream)


def test_superblocks_by_hand():
    # Slots 1 0 1, blocks of 2 bytes. Type 0 has 3 bytes, type 1 five: five blocks, the last of each padded, and a sixth empty.
    layout = Layout(blocks=(1, 2), block_bytes=2, limit_bytes=2)
    group_bits = jnp.array([[8] * 3, [8, 16, 16]])
    order = ordered(group_bits, layout, num_blocks=5)
    # 1: 16 bits. 0: 16 bits, one group done, 8 and 8 wait. 1: 24, a second group, 0 and 8. 1: 24 wait. 0: all done.
    assert np.asarray(order.types).tolist() == [1, 0, 1, 1, 0]
    streams = (jnp.array([1, 2, 3], jnp.uint8), jnp.array([11, 12, 13, 14, 15], jnp.uint8))
    packed = packed_by(streams, order, layout=layout)
    expected = [[[11, 12], [1, 2], [13, 14]], [[15, 0], [3, 0], [0, 0]]]
    assert np.asarray(packed).tolist() == expected
    assert packed.dtype == jnp.uint8
    back = unpacked_by(packed, order, layout=layout, stream_bytes=(3, 5))
    assert [np.asarray(stream).tolist() for stream in back] == [[1, 2, 3], [11, 12, 13, 14, 15]]
    assert superblock.num_blocks([24, 40], layout) == 5
    assert superblock.num_bits([24, 40], layout) == 96


LAYOUT = Layout(blocks=(1, 3, 2), block_bytes=3, limit_bytes=4)
SIZES = (40, 67, 1)


@jax.jit
def there_and_back(group_bits, streams):
    order = read_order(group_bits, LAYOUT, num_blocks=43)
    packed = superblock.pack(streams, order, layout=LAYOUT)
    return order, packed, superblock.unpack(packed, order, layout=LAYOUT, stream_bytes=SIZES)


@settings(max_examples=20)
@given(most=st.sampled_from([1, 7, 25]), seed=st.integers(0, 2**32 - 1))
def test_unpack_is_the_inverse_of_pack(most, seed):
    rng = np.random.default_rng(seed)
    group_bits = jnp.asarray(rng.integers(0, most + 1, size=(3, 23)) * np.array([[1], [2], [0]]))
    streams = tuple(jnp.asarray(rng.integers(256, size=size), jnp.uint8) for size in SIZES)
    order, packed, back = there_and_back(group_bits, streams)
    assert packed.shape == (8, 6, 3)
    nth = [0, 0, 0]
    for kind, block in zip(np.asarray(order.types).tolist(), np.asarray(packed).reshape(-1, 3)):
        stored = np.asarray(streams[kind])[3 * nth[kind] :][:3] if kind >= 0 else np.zeros(0, np.uint8)
        np.testing.assert_array_equal(block, np.pad(stored, (0, 3 - len(stored))))
        nth[kind] += 1
    for stream, restored, blocks in zip(streams, back, np.asarray(order.blocks_read)):
        np.testing.assert_array_equal(restored, np.where(np.arange(stream.size) < 3 * blocks, stream, 0))


def test_expected_bits_are_the_mean_of_the_exact_ones():
    # Many tensors of random sizes, several blocks each. The standard error is 1.1 bits; as streams end at whole bits, a
    # block's padding is half a bit less than half a block.
    rng = np.random.default_rng(5)
    layout = Layout(blocks=(1, 3, 0, 2), block_bytes=5)
    totals = rng.integers(200, 3000, size=(4000, 4)) * np.array([1, 1, 0, 1])
    exact = np.mean([superblock.num_bits(row.tolist(), layout) for row in totals])
    mean_bits = jnp.asarray(totals.mean(axis=0) / 50, jnp.float32)
    expected = float(superblock.expected_bits(mean_bits, 50.0, layout=layout))
    assert abs(expected - exact) < 5
    assert expected - totals.sum(axis=1).mean() > 3.9 * 40


def test_gradient_of_expected_bits(check_gradient):
    at = {"mean": jnp.array([[1.0, 1.71, 2.4], [0.0, 3.0, 0.5]]), "values": jnp.array([900.0, 41.0])}
    weights = jnp.array([1e-3, -2e-3])
    function = lambda x: weights @ superblock.expected_bits(x["mean"], x["values"], layout=LAYOUT)
    gradient = check_gradient(function, at, side={"mean": jnp.array([[0, 0, 0], [1, 0, 0]]), "values": jnp.zeros(2)})
    # One more bit per value costs one bit for each value.
    np.testing.assert_allclose(gradient["mean"], weights[:, None] * at["values"][:, None] * np.ones((1, 3)))
