"""Huff-LLM's single-cycle Huffman decoder, cycle by cycle: an associative memory of 32 codewords and a bit register.

Every cycle the L_max bits from the start pointer S on are compared with all entries at once; the one that matches gives the
symbol and its length L, S moves by L, and the register is refilled from the weight buffer. A register of 32 bits reads the L
bits that became free; one of 64 bits reads a word of 32 only when fewer than 32 valid bits remain. As L_max < 32, either
holds a whole codeword at the start of each cycle: one symbol per cycle, without bubbles.

A column of the array has such a decoder, and a bank of its weight buffer, for each coded group of bits; sign and raw groups
are passed through.

Source: Huff-LLM, 3.1 (splits), 3.2 and its appendix's decoder figure.
Departs: the paper does not say how a register is first filled. Here one word is read before the first cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int32, UInt8, UInt16, UInt32

from jaxspec.formats import fields, huffman
from jaxspec.formats.huffman import MAX_CODE_LENGTH, HuffmanCode
from jaxspec.formats.patterns import BFLOAT16, FLOAT16, NumberFormat

__all__ = [
    "CAM_ENTRIES",
    "MAX_CAM_CODE_LENGTH",
    "SPLITS",
    "BankStream",
    "Cam",
    "CamRun",
    "Column",
    "ColumnRun",
    "FieldSplit",
    "build_cam",
    "column_codes",
    "decode",
    "decode_column",
    "encode_bank",
    "encode_column",
    "expected_bits",
    "num_bits",
]

#: Codewords that one associative memory can compare in a cycle.
CAM_ENTRIES = 32

#: A register that is refilled by words holds 32 valid bits at least, the newest of which need not be used.
MAX_CAM_CODE_LENGTH = 31

_WORD_BITS = 32

#: Bit addresses are int32, and a register may read past the end.
_MOST_BITS = (1 << 31) - 128


class FieldSplit(NamedTuple):
    """Groups of bits, most significant first, and which of them are Huffman-coded; the others are stored as they are."""

    widths: tuple[int, ...]
    coded: tuple[bool, ...]


#: Sign raw; float16's exponent and mantissa halves coded; bfloat16's exponent nibbles coded, its mantissa raw.
SPLITS = {
    FLOAT16.name: FieldSplit((1, 5, 5, 5), (False, True, True, True)),
    BFLOAT16.name: FieldSplit((1, 4, 4, 7), (False, True, True, False)),
}


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


class Column(NamedTuple):
    """The weights of one column: raw groups as they are, each coded group in a bank; all banks have the same capacity."""

    raw: tuple[UInt8[Array, " weight"], ...]
    banks: tuple[BankStream, ...]


class ColumnRun(NamedTuple):
    """Weights of a column, one per cycle.

    Attributes:
        bits: the stored patterns.
        valid: every stream was complete, every cycle matched, and each bank was used up exactly. A corrupted stream whose
            wrong codewords have as many bits in all as the right ones is not noticed.
        reads: accesses of each bank.
    """

    bits: UInt16[Array, " weight"]
    valid: Bool[Array, ""]
    reads: Int32[Array, " bank"]


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


def _split_of(number_format: NumberFormat) -> FieldSplit:
    if number_format.name not in SPLITS:
        raise NotImplementedError(
            f"no split into coded fields for {number_format.name}; there is one for {list(SPLITS)}"
        )
    return SPLITS[number_format.name]


def column_codes(
    bits: UInt16[Array, "*b"], *, number_format: NumberFormat = FLOAT16, max_length: int = MAX_CODE_LENGTH
) -> tuple[HuffmanCode, ...]:
    """The best code of each coded group of a matrix, most significant group first; made once, on the host.

    Raises:
        NotImplementedError: a number format without a split.
        ValueError: `max_length` too short for the patterns that occur.
    """
    split = _split_of(number_format)
    groups = zip(fields.split(jnp.asarray(bits), split.widths), split.widths, split.coded)
    counts = [
        np.bincount(np.asarray(group).reshape(-1), minlength=1 << width) for group, width, coded in groups if coded
    ]
    lengths = [huffman.code_lengths(count, max_length=max_length) for count in counts]
    return tuple(huffman.code_of_lengths(these, max_length=max_length) for these in lengths)


def encode_column(
    bits: UInt16[Array, " weight"],
    codes: Sequence[HuffmanCode],
    *,
    capacity_words: int,
    number_format: NumberFormat = FLOAT16,
) -> Column:
    """The weights of a column in equally large banks, one for each code.

    Args:
        capacity_words: static; words of each bank.
    Raises:
        NotImplementedError: a number format without a split.
        ValueError: another number of codes than of coded groups, or a capacity that `encode_bank` refuses.
    """
    split = _split_of(number_format)
    _check_banks(codes, split)
    groups = list(zip(fields.split(bits, split.widths), split.coded))
    coded = [group for group, is_coded in groups if is_coded]
    banks = [encode_bank(group, code, capacity_words=capacity_words) for group, code in zip(coded, codes)]
    return Column(tuple(group for group, is_coded in groups if not is_coded), tuple(banks))


def decode_column(
    column: Column, cams: Sequence[Cam], *, number_format: NumberFormat = FLOAT16, register_bits: int = 64
) -> ColumnRun:
    """Run a column's decoders side by side and put the weights together again; the inverse of `encode_column`.

    Raises:
        NotImplementedError: a number format without a split.
        ValueError: another number of memories than of coded groups, or another register than 32 or 64 bits.
    """
    split = _split_of(number_format)
    _check_banks(cams, split)
    num_weights = column.raw[0].shape[0]
    runs = [
        decode(cam, bank.words, num_symbols=num_weights, register_bits=register_bits)
        for cam, bank in zip(cams, column.banks)
    ]
    raw, coded = iter(column.raw), iter(run.symbols for run in runs)
    bits = fields.merge([next(coded if is_coded else raw) for is_coded in split.coded], split.widths)
    valid = [
        bank.complete & jnp.all(run.matched) & (run.num_bits == bank.num_bits) for run, bank in zip(runs, column.banks)
    ]
    return ColumnRun(bits, jnp.all(jnp.stack(valid)), jnp.stack([run.reads for run in runs]))


def num_bits(column: Column, *, number_format: NumberFormat = FLOAT16) -> int:
    """Bits of the raw groups and of all codewords, without a bank's unused room; exact on the host, also of many columns."""
    split = _split_of(number_format)
    raw_widths = [width for width, coded in zip(split.widths, split.coded) if not coded]
    raw = sum(group.size * width for group, width in zip(column.raw, raw_widths))
    return raw + sum(int(np.sum(np.asarray(bank.num_bits, np.int64))) for bank in column.banks)


def expected_bits(
    counts: Sequence[Float[Array, " symbol"]],
    *,
    number_format: NumberFormat = FLOAT16,
    max_length: int = MAX_CODE_LENGTH,
) -> Float[Array, ""]:
    """Mean bits per weight with the best codes for these (soft) counts of the coded groups.

    Differentiable with the kinks and jumps of `huffman.expected_bits`.

    Raises:
        NotImplementedError: a number format without a split.
        ValueError: another number of counts than of coded groups.
    """
    split = _split_of(number_format)
    _check_banks(counts, split)
    raw = sum(width for width, coded in zip(split.widths, split.coded) if not coded)
    return jnp.sum(jnp.stack([huffman.expected_bits(count, max_length=max_length) for count in counts])) + raw


def _check_banks(given: Sequence[object], split: FieldSplit) -> None:
    if len(given) != sum(split.coded):
        raise ValueError(f"{len(given)} codes came for the split {split.widths}, which codes {sum(split.coded)} groups")
