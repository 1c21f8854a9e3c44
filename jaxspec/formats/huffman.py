"""Canonical, length-limited Huffman codes: lengths by package-merge, codewords, look-up table, sizes.

Source: Huff-LLM, 3.1 and 3.2 (codes of bit groups, the longest codeword known in advance); Larmore and Hirschberg 1990, "A fast
algorithm for optimal length-limited Huffman codes" (package-merge), here with a list of all items per level.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, UInt8, UInt32

__all__ = [
    "MAX_CODE_LENGTH",
    "DecodingTable",
    "HuffmanCode",
    "code_lengths",
    "code_of_lengths",
    "decoding_table",
    "expected_bits",
    "mean_length",
    "num_bits",
]

#: Longest codeword of the streams in this package: their decoder looks up this many bits at once.
MAX_CODE_LENGTH = 12


@struct.dataclass
class HuffmanCode:
    """A canonical prefix code: its lengths say all.

    Attributes:
        lengths: bits of each symbol's codeword; 0 for a symbol that has none.
        codewords: right-aligned; shorter codewords come first, equal lengths in the order of symbols.
        max_length: static; no codeword is longer, and a decoder looks at this many bits.
    """

    lengths: UInt8[Array, " symbol"]
    codewords: UInt32[Array, " symbol"]
    max_length: int = struct.field(pytree_node=False, default=MAX_CODE_LENGTH)


class DecodingTable(NamedTuple):
    """What every window of `max_length` bits begins with; a length of 0 where no codeword matches."""

    symbols: np.ndarray
    lengths: np.ndarray


def _sorted_lengths(weights: Any, used: Any, max_length: int, xp: Any) -> Any:
    """Package-merge on ascending weights; those behind the first `used` must be infinite. `xp` is numpy or jax.numpy.

    Level by level the list of all items (leaves, and pairs of the level before) is sorted. Taking the cheapest 2 n - 2
    items of the last level, the leaves among them are its cheapest leaves, the pairs the cheapest of the level before,
    which so takes twice as many items: a leaf's length is the number of levels in which it is taken.
    """
    size = weights.shape[0]
    items, leaf_flags = weights, [xp.ones(size, bool)]
    for _ in range(max_length - 1):
        pairs = items[0::2][: items.shape[0] // 2] + items[1::2]
        merged = xp.concatenate([weights, pairs])
        # No level needs more than 2 n - 2 items.
        order = xp.argsort(merged, stable=True)[: 2 * size]
        items = merged[order]
        leaf_flags.append(order < size)
    take = xp.maximum(2 * used - 2, 0)
    lengths = xp.zeros(size, weights.dtype)
    place = xp.arange(size)
    for flags in leaf_flags[::-1]:
        taken_leaves = xp.sum(flags & (xp.arange(flags.shape[0]) < take))
        lengths = lengths + (place < taken_leaves).astype(lengths.dtype)
        take = 2 * (take - taken_leaves)
    # A lone symbol still needs a bit, so that the number of symbols bounds the length of a stream from below.
    return xp.where((used == 1) & (place == 0), 1, lengths)


def code_lengths(counts: Any, *, max_length: int = MAX_CODE_LENGTH) -> np.ndarray:
    """Lengths of an optimal prefix code whose codewords have at most `max_length` bits.

    Args:
        counts: "symbol" non-negative integers; symbols that do not occur get no codeword. Exact below 2^53 in sum.
        max_length: static int, 1 to 32.
    Returns:
        "symbol" uint8; a lone symbol gets one bit.
    Raises:
        ValueError: more symbols than `max_length` bits can tell apart, a negative count, or a width out of range.
    """
    counts = np.asarray(counts)
    if counts.ndim != 1 or not np.issubdtype(counts.dtype, np.integer) or (counts < 0).any():
        raise ValueError("counts must be a vector of non-negative integers; count the symbols with numpy.bincount")
    _check_width(max_length)
    used = np.flatnonzero(counts)
    if used.size > 1 << max_length:
        raise ValueError(f"{used.size} symbols came; {max_length} bits tell {1 << max_length} apart: raise max_length")
    lengths = np.zeros(counts.shape, np.uint8)
    if used.size:
        # Only symbols that occur: all items of a level then weigh at most `max_length` times their total, which int64 holds.
        order = used[np.argsort(counts[used], kind="stable")]
        lengths[order] = _sorted_lengths(counts[order].astype(np.int64), used.size, max_length, np)
    return lengths


def code_of_lengths(lengths: Any, *, max_length: int = MAX_CODE_LENGTH) -> HuffmanCode:
    """The canonical code with these lengths (0: no codeword).

    Raises:
        ValueError: a length above `max_length`, lengths that no prefix code has (Kraft's sum above 1), or a width out of
            range.
    """
    _check_width(max_length)
    lengths = np.asarray(lengths)
    if lengths.size and int(lengths.max(initial=0)) > max_length:
        raise ValueError(
            f"a codeword of {int(lengths.max())} bits came; at most {max_length} are allowed: limit the code"
        )
    used = np.flatnonzero(lengths)
    if int(np.sum(1 << (max_length - lengths[used].astype(np.int64)))) > 1 << max_length:
        raise ValueError("these code lengths overlap (Kraft's sum is above 1); use those of code_lengths")
    order = used[np.argsort(lengths[used], kind="stable")]
    sorted_lengths = lengths[order].astype(np.int64)
    # The codeword, left-aligned to max_length bits, is the sum of the room that all shorter ones take.
    room = 1 << (max_length - sorted_lengths)
    left_aligned = np.cumsum(room) - room
    codewords = np.zeros(lengths.shape, np.uint32)
    codewords[order] = left_aligned >> (max_length - sorted_lengths)
    return HuffmanCode(jnp.asarray(lengths.astype(np.uint8)), jnp.asarray(codewords), max_length)


def decoding_table(code: HuffmanCode) -> DecodingTable:
    """The look-up table of a code: 2^max_length entries, made on the host."""
    symbols, lengths = np.zeros(1 << code.max_length, np.uint16), np.zeros(1 << code.max_length, np.uint8)
    code_lengths_, codewords = np.asarray(code.lengths).astype(np.int64), np.asarray(code.codewords).astype(np.int64)
    for symbol in np.flatnonzero(code_lengths_):
        free = code.max_length - code_lengths_[symbol]
        window = slice(codewords[symbol] << free, (codewords[symbol] + 1) << free)
        symbols[window], lengths[window] = symbol, code_lengths_[symbol]
    return DecodingTable(symbols, lengths)


def num_bits(counts: Any, lengths: Any) -> int:
    """Bits of a stream in which each symbol occurs `counts` times; exact."""
    return int(np.sum(np.asarray(counts, np.int64) * np.asarray(lengths, np.int64)))


def expected_bits(counts: Float[Array, " symbol"], *, max_length: int = MAX_CODE_LENGTH) -> Float[Array, ""]:
    """Mean bits per symbol of the best length-limited code for these (soft) counts.

    Differentiable almost everywhere: near counts that leave the best lengths as they are the mean is linear in the shares,
    so its slope is that of the code held fixed; kinks where another code becomes the best (one of the two slopes is given).
    Total zero gives zero. Shares up to a hundred-millionth count as absent; where a share passes that, its symbol needs a
    codeword and the mean jumps (from 1 to 1.5 beside two equal symbols), which no gradient shows.

    Args:
        counts: "symbol", >= 0.
        max_length: static int, 1 to 32.
    Returns:
        Scalar in bits per symbol; NaN where more symbols occur than `max_length` bits can tell apart.
    Raises:
        ValueError: a width out of range.
    """
    _check_width(max_length)
    counts = jnp.asarray(counts)
    if counts.size == 0:
        return jnp.zeros((), counts.dtype)
    total = jnp.sum(counts)
    shares = counts / jnp.where(total > 0, total, 1.0)
    return jnp.sum(shares * jax.lax.stop_gradient(_soft_lengths(shares, max_length)))


def _check_width(max_length: int) -> None:
    if not 1 <= max_length <= 32:
        raise ValueError(f"max_length {max_length} came; allowed are 1 to 32 bits: a decoder's window holds no more")


def _soft_lengths(shares: Float[Array, " symbol"], max_length: int) -> Float[Array, " symbol"]:
    shares = jax.lax.stop_gradient(shares)
    weights = jnp.where(shares > 1e-8, shares, jnp.inf)
    order = jnp.argsort(weights, stable=True)
    used = jnp.sum(jnp.isfinite(weights))
    lengths = _sorted_lengths(weights[order], used, max_length, jnp)
    if shares.size > 1 << max_length:
        lengths = jnp.where(used > 1 << max_length, jnp.nan, lengths)
    return jnp.zeros_like(lengths).at[order].set(lengths)


def mean_length(counts: Any, lengths: Any) -> float:
    """Mean bits per symbol of a stream; 0 for an empty one."""
    total = int(np.sum(np.asarray(counts, np.int64)))
    return num_bits(counts, lengths) / total if total else 0.0
