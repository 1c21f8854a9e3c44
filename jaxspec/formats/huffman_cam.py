"""Huff-LLM's single-cycle Huffman decoder, cycle by cycle: an associative memory of 32 codewords and a bit register.

Every cycle the L_max bits from the start pointer S on are compared with all entries at once; the one that matches gives the
symbol and its length L, S moves by L, and the register is refilled from the weight buffer. A register of 32 bits reads the L
bits that became free; one of 64 bits reads a word of 32 only when fewer than 32 valid bits remain. As L_max < 32, either
holds a whole codeword at the start of each cycle: one symbol per cycle, without bubbles.

A column of the array has several of them: see `jaxspec.formats.huffman_columns`.

Source: Huff-LLM, 3.2 and its appendix's decoder figure.
Departs: the paper does not say how a register is first filled. Here one word is read before the first cycle.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Int32, UInt8, UInt32

from jaxspec.formats.huffman import HuffmanCode

__all__ = [
    "CAM_ENTRIES",
    "MAX_CAM_CODE_LENGTH",
    "BankStream",
    "Cam",
    "CamRun",
    "build_cam",
    "decode",
    "encode_bank",
]

#: Codewords that one associative memory can compare in a cycle.
CAM_ENTRIES = 32

#: A register that is refilled by words holds 32 valid bits at least, the newest of which need not be used.
MAX_CAM_CODE_LENGTH = 31

_WORD_BITS = 32

#: Bit addresses are int32, and a register may read past the end.
_MOST_BITS = (1 << 31) - 128


@struct.dataclass
class Cam:
    """The associative memory; entries of length 0 are empty and never match.

    Attributes:
        codewords: right-aligned.
        max_length: static; L_max, bits compared in a cycle.
    """

    codewords: UInt32[Array, " entry"]
    symbols: UInt8[Array, " entry"]
    lengths: UInt8[Array, " entry"]
    max_length: int = struct.field(pytree_node=False)


class BankStream(NamedTuple):
    """Codewords back to back in one bank, the first bit in the most significant bit of the first word.

    Attributes:
        words: zero beyond the last codeword.
        num_bits: bits of all codewords.
        complete: every symbol has a codeword, and all of them fit.
    """

    words: UInt32[Array, " word"]
    num_bits: Int32[Array, ""]
    complete: Bool[Array, ""]


class CamRun(NamedTuple):
    """What a decoder did.

    Attributes:
        symbols: one per cycle; 0 where nothing matched.
        matched: whether exactly one entry matched. Otherwise the start pointer stays, and so no later cycle matches.
        bits_read: from the weight buffer in each cycle, at its end; 0 means no access.
        reads: accesses to the weight buffer, the one before the first cycle included. Reading past the end gives zeros and
            counts, because a decoder does not know where its bank ends.
        num_bits: bits of the codewords decoded; another number than the stream's means that it is corrupt.
    """

    symbols: UInt8[Array, " cycle"]
    matched: Bool[Array, " cycle"]
    bits_read: UInt8[Array, " cycle"]
    reads: Int32[Array, ""]
    num_bits: Int32[Array, ""]


class _Register(NamedTuple):
    """A ring of bits: `valid` of them from `start` on; `address` is the next bit of the weight buffer to be read."""

    words: UInt32[Array, " word"]
    start: Int32[Array, ""]
    valid: Int32[Array, ""]
    address: Int32[Array, ""]


def build_cam(code: HuffmanCode) -> Cam:
    """The entries of a code in the order of its symbols; made on the host.

    Raises:
        ValueError: more than 32 codewords, a longest codeword that the register cannot hold, or symbols beyond a byte.
    """
    lengths = np.asarray(code.lengths)
    used = np.flatnonzero(lengths)
    if used.size > CAM_ENTRIES:
        raise ValueError(
            f"{used.size} codewords came; an associative memory holds {CAM_ENTRIES}: split the pattern into fields of at "
            "most 5 bits"
        )
    if code.max_length > MAX_CAM_CODE_LENGTH:
        raise ValueError(
            f"max_length {code.max_length} came; at most {MAX_CAM_CODE_LENGTH} are allowed, fewer than a word: limit the code"
        )
    if used.size and used[-1] > 255:
        raise ValueError(f"symbol {used[-1]} came; symbols are bytes: split the pattern into narrower fields")
    table = np.zeros((3, CAM_ENTRIES), np.uint32)
    table[:, : used.size] = np.asarray(code.codewords)[used], used, lengths[used]
    codewords, symbols, entry_lengths = map(jnp.asarray, table)
    return Cam(codewords, symbols.astype(jnp.uint8), entry_lengths.astype(jnp.uint8), code.max_length)


def encode_bank(symbols: UInt8[Array, " n"], code: HuffmanCode, *, capacity_words: int) -> BankStream:
    """Write the codewords of the symbols one after the other.

    Args:
        symbols: below the size of the code's alphabet; one without a codeword writes nothing and clears `complete`.
        capacity_words: static; words of the bank. What does not fit is dropped, and clears `complete`.
    Raises:
        ValueError: negative capacity, or so many symbols that their bits might not be counted in int32.
    """
    if capacity_words < 0:
        raise ValueError(f"capacity_words is {capacity_words}; reserve at least num_bits / 32 words")
    if symbols.size * code.max_length > _MOST_BITS:
        raise ValueError(
            f"{symbols.size} symbols of up to {code.max_length} bits came, a bank holds less than 2^31 bits: use more columns"
        )
    # A code without symbols has nothing to look up.
    padded = jnp.pad(code.lengths, (0, 1)), jnp.pad(code.codewords, (0, 1))
    index = jnp.minimum(symbols.astype(jnp.int32), code.lengths.size)
    lengths, codewords = padded[0][index].astype(jnp.int32), padded[1][index]
    ends = jnp.cumsum(lengths, dtype=jnp.int32)
    begins = ends - lengths
    # A codeword at the head of a word, moved on by its place in the word, lies in this word and perhaps in the next; no two
    # codewords share a bit, so adding is joining. A shift by 32 is none of nothing, or one by 31 and one by 1.
    head = codewords << ((32 - lengths) & 31).astype(jnp.uint32)
    shift = (begins & 31).astype(jnp.uint32)
    place = begins >> 5
    words = jnp.zeros(capacity_words, jnp.uint32).at[place].add(head >> shift, mode="drop")
    words = words.at[place + 1].add((head << 1) << (31 - shift), mode="drop")
    total = jnp.sum(lengths, dtype=jnp.int32)
    fits = total <= min(capacity_words * _WORD_BITS, _MOST_BITS)
    return BankStream(words, total, jnp.all(lengths > 0) & fits)


def decode(cam: Cam, words: UInt32[Array, " word"], *, num_symbols: int, register_bits: int = 64) -> CamRun:
    """Run a decoder for one cycle per symbol.

    Args:
        words: of one bank, the first bit in the most significant bit of the first word; zeros follow them.
        num_symbols: static; cycles.
        register_bits: static, 32 or 64.
    Raises:
        ValueError: another register, or a bank of 2^31 bits or more.
    """
    if register_bits not in (32, 64):
        raise ValueError(f"register_bits is {register_bits}; the decoder has registers of 32 or 64 bits")
    if max(words.size * _WORD_BITS, num_symbols * cam.max_length) > _MOST_BITS:
        raise ValueError(
            f"{num_symbols} symbols in {words.size} words came, a bank holds less than 2^31 bits: use more columns"
        )
    buffer = jnp.pad(words, (0, 2))
    refill = _refill_bits if register_bits == 32 else _refill_word

    def cycle(register, _):
        window = _window(register.words, register.start, wrap=True)
        symbol, length, matched = _match(cam, window >> (_WORD_BITS - cam.max_length))
        register, bits_read = refill(register, length, buffer)
        return register, (symbol, matched, bits_read.astype(jnp.uint8))

    full = jnp.zeros(register_bits // _WORD_BITS, jnp.uint32).at[0].set(buffer[0])
    word = jnp.int32(_WORD_BITS)
    register, (symbols, matched, bits_read) = jax.lax.scan(
        cycle, _Register(full, jnp.int32(0), word, word), None, length=num_symbols
    )
    reads = 1 + jnp.sum(bits_read > 0, dtype=jnp.int32)
    return CamRun(symbols, matched, bits_read, reads, register.address - register.valid)


def _match(cam: Cam, window: UInt32[Array, ""]) -> tuple[UInt8[Array, ""], Int32[Array, ""], Bool[Array, ""]]:
    """Symbol, length and whether there is one, from the L_max bits at the start pointer."""
    head = window >> (cam.max_length - cam.lengths.astype(jnp.int32)).astype(jnp.uint32)
    hit = (cam.lengths > 0) & (head == cam.codewords)
    matched = jnp.sum(hit, dtype=jnp.int32) == 1
    # One entry at most matches in a prefix code: summing is selecting, as hardware ORs its match lines.
    symbol = jnp.sum(jnp.where(hit & matched, cam.symbols, jnp.uint8(0)), dtype=jnp.uint8)
    length = jnp.sum(jnp.where(hit & matched, cam.lengths.astype(jnp.int32), 0), dtype=jnp.int32)
    return symbol, length, matched


def _window(words: UInt32[Array, " word"], position: Int32[Array, ""], *, wrap: bool) -> UInt32[Array, ""]:
    """The 32 bits from a position on; behind the last word comes the first, or (its last two are zeros) nothing."""
    first = position >> 5
    second = (first + 1) % words.size if wrap else jnp.minimum(first + 1, words.size - 1)
    first = first if wrap else jnp.minimum(first, words.size - 1)
    shift = (position & 31).astype(jnp.uint32)
    return (words[first] << shift) | ((words[second] >> 1) >> (31 - shift))


def _refill_bits(register: _Register, length: Int32[Array, ""], buffer: UInt32[Array, " word"]):
    """32-bit register: the bits just used give way to as many new ones."""
    free = ~(jnp.uint32(0xFFFFFFFF) >> length.astype(jnp.uint32))
    new = _window(buffer, register.address, wrap=False) & free
    turn = lambda bits: _window(bits[None], (_WORD_BITS - register.start) & 31, wrap=True)
    word = (register.words[0] & ~turn(free)) | turn(new)
    start = (register.start + length) & 31
    return _Register(word[None], start, register.valid, register.address + length), length


def _refill_word(register: _Register, length: Int32[Array, ""], buffer: UInt32[Array, " word"]):
    """64-bit register: a word into the half without valid bits, once fewer than 32 are left."""
    valid = register.valid - length
    read = valid < _WORD_BITS
    address = register.address >> 5
    half = address & 1
    new = buffer[jnp.minimum(address, buffer.size - 1)]
    words = register.words.at[half].set(jnp.where(read, new, register.words[half]))
    bits_read = jnp.where(read, _WORD_BITS, 0)
    start = (register.start + length) & 63
    return _Register(words, start, valid + bits_read, register.address + bits_read), bits_read
