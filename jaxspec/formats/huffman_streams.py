"""Huffman codes over many independent streams, encoded and decoded in step: what makes decoding parallel.

A tensor's symbols are dealt to `lanes` streams: element (step * lanes + lane) * 2 + i is the i-th symbol of a step, so
that one step of all lanes reads and writes neighbouring memory. Each lane is a plain canonical Huffman stream, first bit
highest, in 32-bit words of its own. A step decodes two symbols from one window of 32 bits: codewords of at most 12 bits leave
room for both whatever the position within the word.

Source: the independent streams with offsets that Huff-LLM's columns (3.2) have in hardware; here they are vector lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, UInt, UInt16, UInt32

from jaxspec.formats.huffman import MAX_CODE_LENGTH, HuffmanCode, code_lengths, code_of_lengths, decoding_table

__all__ = [
    "DecodedPairs",
    "HuffmanStreams",
    "code_of_symbols",
    "decode",
    "decode_bfloat16",
    "decode_pairs",
    "encode",
    "entries",
    "expected_bits",
    "num_bits",
    "num_lanes",
    "num_steps",
]

#: Lanes of large tensors, and the symbols a lane should have at least: 16 bits of offset and 16 of padding (mean) a lane
#: then cost less than 0.01 bits per symbol.
MOST_LANES = 1024
SYMBOLS_PER_LANE = 4096

_WORD_BITS = 32

#: Bit addresses are uint32.
_TOO_MANY_WORDS = 1 << 27


@struct.dataclass
class HuffmanStreams:
    """All lanes of one tensor.

    Attributes:
        words: the lanes one after the other; unused words at the end are zero.
        word_counts: words of each lane.
    """

    words: UInt32[Array, " word"]
    word_counts: UInt32[Array, " lane"]

    @property
    def starts(self) -> UInt32[Array, " lane"]:
        """First word of each lane."""
        return jnp.cumsum(self.word_counts, dtype=jnp.uint32) - self.word_counts


@struct.dataclass
class DecodedPairs:
    """What decoding gave.

    Attributes:
        pairs: two symbols per entry, the first in the low half, each as its table entry holds it; from `decode` the
            symbols in order.
        complete: every lane ended in its last word; False means the streams do not belong to this table. True is no proof: what
            is lost or wrong by less than a lane's padding may go unnoticed.
    """

    pairs: UInt32[Array, "step lane"] | UInt16[Array, " n"]
    complete: Bool[Array, ""]


def num_lanes(num_symbols: int) -> int:
    """Lanes for a number of symbols: a power of two, 1 to 1024."""
    return min(MOST_LANES, 1 << max(0, (num_symbols // SYMBOLS_PER_LANE).bit_length() - 1))


def num_steps(num_symbols: int, lanes: int) -> int:
    """Steps of two symbols per lane that hold all symbols."""
    return -(-num_symbols // (2 * lanes))


def num_bits(streams: HuffmanStreams) -> int:
    """Bits that the streams take where they are stored: whole words, and 16 bits of word count a lane."""
    return _WORD_BITS * int(np.sum(np.asarray(streams.word_counts, np.int64))) + 16 * streams.word_counts.size


def expected_bits(
    num_symbols: Float[Array, "*b"] | float, mean_bits: Float[Array, "*b"] | float, *, lanes: int
) -> Float[Array, "*b"] | float:
    """Bits that streams of so many symbols take on average: codewords, half a word of padding a lane, the word counts.

    Bilinear, so its gradient is exact everywhere; the padding is that of many symbols a lane.

    Args:
        mean_bits: of a symbol's codeword (`huffman.expected_bits`).
        lanes: static.
    """
    return num_symbols * mean_bits + lanes * ((_WORD_BITS - 1) / 2 + 16)


def encode(
    symbols: UInt[Array, " n"], code: HuffmanCode, *, lanes: int | None = None, capacity_words: int | None = None
) -> HuffmanStreams:
    """Streams of symbols that all have codewords.

    Args:
        symbols: "n" uint8 or uint16, any n; the last step is filled up with a shortest codeword. One without a codeword is
            left out; what follows in its lane then moves up, which decoding need not notice: make the code from the symbols.
        lanes: static, at least 1; None takes `num_lanes`.
        capacity_words: static length of `words`; None has room for the longest code. Words past it are lost.
    Raises:
        ValueError: codewords longer than 16 bits (two would not fit a window), no lane, or so many words that their bits are
            not counted in uint32.
    """
    if code.max_length > _WORD_BITS // 2:
        raise ValueError(f"codewords of up to {code.max_length} bits came; at most 16 are allowed: limit the code")
    lanes = num_lanes(symbols.size) if lanes is None else lanes
    if lanes < 1:
        raise ValueError(f"lanes is {lanes}; symbols are dealt to at least one")
    steps = num_steps(symbols.size, lanes)
    room = lanes * -(-2 * steps * code.max_length // _WORD_BITS)
    capacity = room if capacity_words is None else capacity_words
    _check_capacity(capacity)
    return _encode(symbols, code, lanes, steps, capacity)


def _check_capacity(num_words: int) -> None:
    if num_words >= _TOO_MANY_WORDS:
        raise ValueError(
            f"{num_words} words came; less than 2^27 are addressed bit by bit: split the tensor, or reserve less"
        )


@partial(jax.jit, static_argnums=(2, 3, 4))
def _encode(symbols, code, lanes: int, steps: int, capacity: int) -> HuffmanStreams:
    # Behind the alphabet is one more entry, without codeword, for symbols that are not in it.
    lengths = jnp.pad(code.lengths, (0, 1)).astype(jnp.uint32)
    table = (lengths << 16) | jnp.pad(code.codewords, (0, 1))
    if code.lengths.size <= jnp.iinfo(symbols.dtype).max:
        symbols = jnp.minimum(symbols, code.lengths.size)
    shortest = jnp.argmin(jnp.where(lengths > 0, lengths, jnp.uint32(99)))
    filled = jnp.full(steps * lanes * 2, shortest.astype(symbols.dtype)).at[: symbols.size].set(symbols)
    dealt = filled.reshape(steps, lanes, 2)
    zeros = jnp.zeros(lanes, jnp.uint32)

    def measure(total, pair):
        return total + (table[pair[:, 0]] >> 16) + (table[pair[:, 1]] >> 16), None

    lane_bits, _ = jax.lax.scan(measure, zeros, dealt)
    word_counts = (lane_bits + (_WORD_BITS - 1)) // _WORD_BITS
    starts = jnp.cumsum(word_counts, dtype=jnp.uint32) - word_counts

    def step(state, pair):
        word, fill, place, words = state
        first, second = table[pair[:, 0]], table[pair[:, 1]]
        length = (first >> 16) + (second >> 16)
        both = ((first & 0xFFFF) << (second >> 16)) | (second & 0xFFFF)
        aligned = jnp.where(length > 0, both << ((_WORD_BITS - length) & 31), 0)
        full, word = word | (aligned >> fill), jnp.where(fill > 0, aligned << ((_WORD_BITS - fill) & 31), 0)
        fill = fill + length
        flush = fill >= _WORD_BITS
        words = words.at[jnp.where(flush, place, capacity)].set(full, mode="drop", unique_indices=True)
        state = jnp.where(flush, word, full), fill & 31, place + flush.astype(jnp.uint32), words
        return state, None

    # Where a lane has nothing to write, it writes behind the last word, i.e. nowhere.
    start = (zeros, zeros, starts, jnp.zeros(capacity, jnp.uint32))
    (word, fill, place, words), _ = jax.lax.scan(step, start, dealt)
    words = words.at[jnp.where(fill > 0, place, capacity)].set(word, mode="drop", unique_indices=True)
    return HuffmanStreams(words, word_counts)


def entries(code: HuffmanCode, *, shift: int = 0) -> UInt32[Array, " window"]:
    """Look-up table for `decode_pairs`: the codeword's length in the high half, the symbol shifted left in the low one."""
    table = decoding_table(code)
    return jnp.asarray((table.lengths.astype(np.uint32) << 16) | (table.symbols.astype(np.uint32) << shift))


def _alone(pairs: UInt32[Array, " lane"], _: Array | None) -> UInt32[Array, " lane"]:
    return pairs


def decode_pairs(
    streams: HuffmanStreams,
    table: UInt32[Array, " window"],
    rest: UInt[Array, "step lane"] | None = None,
    *,
    steps: int,
    join: Callable[[Array, Array | None], Array] = _alone,
) -> DecodedPairs:
    """Decode all lanes, two symbols a step.

    Args:
        table: of `entries`; its length, a power of two, says how many bits it looks at.
        rest: "step lane ..." other bits of the same elements, joined to the symbols while they are at hand.
        steps: static.
        join: static; maps a step's pairs and its part of `rest` to what is returned.
    Raises:
        ValueError: 2^27 words or more.
    """
    low = jnp.uint32(0xFFFF)
    free = _WORD_BITS - (table.shape[0].bit_length() - 1)
    _check_capacity(streams.words.shape[0])
    # A decoder looks at a word also where there is none, and at the word behind every one.
    words, starts = jnp.pad(streams.words, (0, 2)), streams.starts

    def look(index):
        # Indices never leave the table.
        return table.at[index >> free].get(mode="promise_in_bounds")

    def step(place, rest_of_step):
        # Places leave damaged streams. One limit for both words: compiled code then takes an index out of its vector once,
        # which is what looking up costs.
        word, bit = jnp.minimum(place >> 5, words.shape[0] - 2), place & 31
        window = words.at[word].get(mode="promise_in_bounds") << bit
        window = window | ((words.at[word + 1].get(mode="promise_in_bounds") >> 1) >> (31 - bit))
        first = look(window)
        second = look(window << ((first >> 16) & 31))
        pair = (first & low) | (second << 16)
        return place + (first >> 16) + (second >> 16), join(pair, rest_of_step)

    ends, pairs = jax.lax.scan(step, starts << 5, rest, length=steps)
    complete = jnp.all((ends + (_WORD_BITS - 1)) >> 5 == starts + streams.word_counts)
    return DecodedPairs(pairs, complete)


@partial(jax.jit, static_argnames="num_symbols")
def decode(streams: HuffmanStreams, table: UInt32[Array, " window"], *, num_symbols: int) -> DecodedPairs:
    """The symbols in order: `pairs` is then "num_symbols" uint16.

    Args:
        num_symbols: static; as many as were encoded.
    """
    steps = num_steps(num_symbols, streams.word_counts.shape[0])
    decoded = decode_pairs(streams, table, steps=steps)
    flat = jax.lax.bitcast_convert_type(decoded.pairs, jnp.uint16).reshape(-1)
    return DecodedPairs(flat[:num_symbols], decoded.complete)


def _beside_exponents(pairs: UInt32[Array, " lane"], sign_mantissa: Array | None) -> UInt32[Array, " lane"]:
    """Exponents in place (bits 7 to 14 of each half), and two bytes of sign and mantissa spread around them."""
    assert sign_mantissa is not None
    two_bytes = sign_mantissa.astype(jnp.uint32)
    spread = (two_bytes | (two_bytes << 8)) & jnp.uint32(0x00FF00FF)
    return pairs | ((spread & jnp.uint32(0x00800080)) << 8) | (spread & jnp.uint32(0x007F007F))


@jax.jit
def decode_bfloat16(
    streams: HuffmanStreams, table: UInt32[Array, " window"], sign_mantissa: UInt16[Array, "step lane"]
) -> DecodedPairs:
    """Exponents decoded and bfloat16 patterns reassembled in one pass over memory.

    The result stays in pairs: on the host they are the patterns in order, seen through a view of the same memory, while a
    cast on the device would write all of it once more.

    Args:
        table: `entries(code, shift=7)`.
        sign_mantissa: two bytes per entry, the first element's in the low one: sign highest, 7 bits of mantissa below.
    Returns:
        two patterns per entry of `pairs`, the first element's in the low half.
    """
    return decode_pairs(streams, table, sign_mantissa, steps=sign_mantissa.shape[0], join=_beside_exponents)


def code_of_symbols(counts: np.ndarray) -> HuffmanCode:
    """The best code of at most 12 bits for these counts."""
    return code_of_lengths(code_lengths(counts, max_length=MAX_CODE_LENGTH), max_length=MAX_CODE_LENGTH)
