"""Bits of a container's sections on the host: fixed-width fields and unary codewords.

The layouts are those of `formats.bit_packing` and `formats.unary`, which run inside compiled programs. Here NumPy does the same
work: nothing is compiled anew for each size of a tensor, and a value takes one or two nanoseconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["MOST_WIDTH", "UnaryRanks", "look_up", "pack", "read_unary", "unpack", "write_unary"]

#: Widest fields: eight of them fit into a word of 64 bits, eight of half their width into one of 32.
MOST_WIDTH = 8

#: Codewords, and bytes of codewords, that are spread out into bytes at once: few enough to stay in a core's cache.
_SYMBOLS, _BYTES = 1 << 16, 1 << 15


class UnaryRanks(NamedTuple):
    """What a stream of unary codewords says.

    Attributes:
        ranks: "codeword" uint8; 255 stands for longer ones, too.
        largest: rank, exactly; -1 without codewords.
    """

    ranks: np.ndarray
    largest: int


def _types(width: int) -> tuple[type[np.unsignedinteger], type[np.unsignedinteger], type[np.unsignedinteger]]:
    """Smallest integers of two, four and eight fields: half as many bytes go through memory where fields are narrow."""
    return (np.uint8, np.uint16, np.uint32) if width <= MOST_WIDTH // 2 else (np.uint16, np.uint32, np.uint64)


def pack(values: np.ndarray, width: int) -> np.ndarray:
    """The low `width` bits of uint16 values, 1 to `MOST_WIDTH`, in uint32 words: see `bit_packing.pack`."""
    if width == 1:
        return _words(np.packbits((values & 1).astype(bool)))
    two, four, eight = _types(width)
    groups = -(-values.size // 8)
    wide = np.zeros(8 * groups, two)
    np.bitwise_and(values, np.uint16((1 << width) - 1), out=wide[: values.size], casting="unsafe")
    # Neighbours are joined three times: eight values then are the low bytes of one word.
    pairs = (wide[0::2] << two(width)) | wide[1::2]
    fours = (pairs[0::2].astype(four) << four(2 * width)) | pairs[1::2]
    eights = (fours[0::2].astype(eight) << eight(4 * width)) | fours[1::2]
    size = eights.dtype.itemsize
    content = eights.astype(eights.dtype.newbyteorder(">")).view(np.uint8).reshape(groups, size)[:, size - width :]
    return _words(content.reshape(-1)[: -(-values.size * width // 8)])


def unpack(words: np.ndarray, width: int, count: int) -> np.ndarray:
    """Inverse of `pack`: uint16; of as many words as `count` values fill."""
    content = words.astype(">u4").view(np.uint8)
    if width == 1:
        return np.unpackbits(content, count=count).astype(np.uint16)
    two, four, eight = _types(width)
    groups, size = -(-count // 8), np.dtype(eight).itemsize
    whole = np.zeros(groups * width, np.uint8)
    whole[: content.size] = content[: whole.size]
    wide = np.zeros((groups, size), np.uint8)
    wide[:, size - width :] = whole.reshape(groups, width)
    values = wide.reshape(-1).view(np.dtype(eight).newbyteorder(">")).astype(eight)
    for share, dtype in ((4, four), (2, two), (1, np.uint16)):
        halves = np.empty(2 * values.size, dtype)
        halves[0::2] = values >> values.dtype.type(share * width)
        halves[1::2] = values & values.dtype.type((1 << share * width) - 1)
        values = halves
    return values[:count]


def _words(content: np.ndarray) -> np.ndarray:
    """Bytes, first one highest, as words that are stored little-endian."""
    padded = np.zeros(-(-content.size // 4) * 4, np.uint8)
    padded[: content.size] = content
    return padded.view(">u4").astype(np.uint32)


def write_unary(symbols: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Bytes of unary codewords, one behind the other, zeros behind the last one.

    Args:
        symbols: "codeword" uint8.
        lengths: "symbol" uint16; bits of each symbol's codeword.
    """
    parts, begun, shift = list[np.ndarray](), np.zeros(1, np.uint8), 0
    for first in range(0, symbols.size, _SYMBOLS):
        # A codeword is zeros and a one at its end. Every piece begins within the byte where the one before it ended.
        ends = np.cumsum(lengths.take(symbols[first : first + _SYMBOLS]), dtype=np.int64) + shift
        spread = np.zeros(int(ends[-1]), bool)
        spread[ends - 1] = True
        content = np.packbits(spread)
        content[0] |= begun[0]
        shift = spread.size & 7
        whole = spread.size >> 3
        begun = content[whole:] if shift else np.zeros(1, np.uint8)
        parts.append(content[:whole])
    return np.concatenate([*parts, begun[: shift > 0]])


def look_up(table: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Entries of a table; indices of 8 bits become addresses piece by piece, within a core's cache."""
    values = np.empty(indices.size, table.dtype)
    for first in range(0, indices.size, _SYMBOLS):
        values[first : first + _SYMBOLS] = table.take(indices[first : first + _SYMBOLS])
    return values


def read_unary(data: np.ndarray, count: int) -> UnaryRanks:
    """Inverse of `write_unary`: the zeros before each one.

    Args:
        count: ones in `data`, uint8.
    """
    ranks, place, before, largest = np.empty(count, np.uint8), 0, -1, -1
    for first in range(0, data.size, _BYTES):
        ones = np.flatnonzero(np.unpackbits(data[first : first + _BYTES]).view(bool))
        if ones.size:
            ones += 8 * first
            zeros = np.diff(ones, prepend=before) - 1
            largest = max(largest, int(zeros.max()))
            ranks[place : place + ones.size] = np.minimum(zeros, 255)
            place, before = place + ones.size, int(ones[-1])
    return UnaryRanks(ranks, largest)
