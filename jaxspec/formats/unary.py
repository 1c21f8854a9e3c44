"""Unary exponent code: the symbol of rank r (by falling frequency) is r zeros and a one. Codebook, encoder, sizes.

Source: Cassandra, IV-B and Fig. 5 (1, 01, 001, ...). The parallel decoders are in `unary_decode`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32, Integer, UInt8

__all__ = [
    "CODEBOOK_ENTRY_BITS",
    "MAX_STREAM_BYTES",
    "NUM_SYMBOLS",
    "Codebook",
    "UnaryStream",
    "build_codebook",
    "code_length_counts",
    "encode",
    "encoded_bits",
    "mean_code_length",
    "mean_length",
    "weighted_counts",
]

#: Bits of one codebook entry: the exponent that a rank stands for.
CODEBOOK_ENTRY_BITS = 8

#: Exponents of bfloat16 and float32.
NUM_SYMBOLS = 256

#: Bit positions are int32: one stream holds a little less than 2**31 bits, with room for a reader to look past its end.
MAX_STREAM_BYTES = (1 << 28) - 128

#: `encoded_bits` of a stream that is longer than any that can be stored.
_TOO_MANY_BITS = (1 << 31) - 1

#: Codewords whose lengths (256 bits at most) are summed exactly in int32, far from overflow.
_SUM_BLOCK = 1 << 20

#: Weights that are added up one by one: beyond 2**24 a float32 counter would no longer move.
_COUNT_BLOCK = 1 << 12


class Codebook(NamedTuple):
    """Ranking of the symbols, most frequent first.

    Attributes:
        symbols: the symbol of each rank; those that never occur come last.
        rank_of: the rank of each symbol, the inverse permutation.
        size: symbols that occur, i.e. entries that have to be stored; ranks from `size` on are not part of the code.
    """

    symbols: UInt8[Array, "*b symbol"]
    rank_of: UInt8[Array, "*b symbol"]
    size: Int32[Array, "*b"]


class UnaryStream(NamedTuple):
    """Codewords back to back, the first bit of the stream in the most significant bit of the first byte.

    Attributes:
        data: the bytes, zero beyond the last codeword.
        num_bits: bits of all codewords. More than `data` holds means that the capacity was too small and the end is lost.
    """

    data: UInt8[Array, " capacity"]
    num_bits: Int32[Array, ""]


def build_codebook(counts: Float[Array, "*b symbol"] | Integer[Array, "*b symbol"]) -> Codebook:
    """Codebook of the shortest unary code for symbols that occur this often; ties are ranked by symbol value."""
    if counts.shape[-1:] != (NUM_SYMBOLS,):
        raise ValueError(f"counts end in an axis of {NUM_SYMBOLS} symbols, these have shape {counts.shape}")
    symbols = jnp.argsort(counts, axis=-1, stable=True, descending=True)
    return Codebook(
        symbols=symbols.astype(jnp.uint8),
        rank_of=jnp.argsort(symbols, axis=-1).astype(jnp.uint8),
        size=jnp.sum(counts > 0, axis=-1, dtype=jnp.int32),
    )


def encoded_bits(symbols: UInt8[Array, " n"], codebook: Codebook) -> Int32[Array, ""]:
    """Bits of the codewords of these symbols, without codebook: what sizes the capacity of `encode`.

    Exact below 2.147e9 bits, i.e. always below 2**23 symbols; a longer stream gives 2**31 - 1, which no capacity holds.
    """
    lengths = _lengths(symbols, codebook)
    blocks = jnp.pad(lengths, (0, -lengths.size % _SUM_BLOCK)).reshape(-1, _SUM_BLOCK)
    sums = jnp.sum(blocks, axis=1, dtype=jnp.int32)
    # The float sum is off by a few kbit and does not wrap around; it only says whether the exact one did.
    too_many = jnp.sum(sums.astype(jnp.float32)) > 0.99998 * _TOO_MANY_BITS
    return jnp.where(too_many, jnp.int32(_TOO_MANY_BITS), jnp.sum(sums, dtype=jnp.int32))


def encode(symbols: UInt8[Array, " n"], codebook: Codebook, *, capacity_bytes: int) -> UnaryStream:
    """Write the codewords of the symbols one after the other.

    Args:
        symbols: "n"; a symbol that the codebook does not count is written under its rank, and decoding it is reported.
        capacity_bytes: static; bytes to reserve, at least encoded_bits / 8. What does not fit is dropped: see `num_bits`.
    Raises:
        ValueError: capacity negative or above MAX_STREAM_BYTES.
    """
    if not 0 <= capacity_bytes <= MAX_STREAM_BYTES:
        raise ValueError(
            f"capacity_bytes is {capacity_bytes}, allowed are 0 to {MAX_STREAM_BYTES}; split longer tensors into streams"
        )
    # All that is written are the ones; each byte is the sum of its ones, which never share a bit.
    ends = jnp.cumsum(_lengths(symbols, codebook)) - 1
    ones = (0x80 >> (ends & 7)).astype(jnp.uint8)
    data = jnp.zeros(capacity_bytes, jnp.uint8).at[ends >> 3].add(ones, mode="drop")
    return UnaryStream(data=data, num_bits=encoded_bits(symbols, codebook))


def _lengths(symbols: UInt8[Array, " n"], codebook: Codebook) -> Int32[Array, " n"]:
    """Bits of each codeword."""
    return codebook.rank_of[symbols.astype(jnp.int32)].astype(jnp.int32) + 1


def weighted_counts(symbols: Integer[Array, "*b n"], weights: Float[Array, "*b n"]) -> Float[Array, "*b symbol"]:
    """Occurrences of each of the 256 exponents, each value counted with its weight (0 to 1).

    Added up in blocks, in float32 at least, so that long rows are counted as well as short ones; linear in the weights.
    """
    *lead, length = symbols.shape
    size = max(1, min(length, _COUNT_BLOCK))
    blocks = -(-length // size)
    # What fills the last block has the weight 0.
    filled = [(0, 0)] * len(lead) + [(0, blocks * size - length)]
    flat = jnp.pad(symbols, filled).reshape(math.prod(lead) * blocks, size).astype(jnp.int32)
    dtype = jnp.float64 if weights.dtype == jnp.float64 else jnp.float32
    wide = jnp.pad(weights, filled).reshape(flat.shape).astype(dtype)
    # One index per value: two of them would take twice as long.
    place = flat + jnp.arange(flat.shape[0], dtype=jnp.int32)[:, None] * NUM_SYMBOLS
    counts = jnp.zeros(flat.shape[0] * NUM_SYMBOLS, dtype).at[place.reshape(-1)].add(wide.reshape(-1))
    return jnp.sum(counts.reshape(*lead, blocks, NUM_SYMBOLS), axis=-2)


def code_length_counts(counts: Float[Array, "*b symbol"]) -> Float[Array, "*b length"]:
    """Codewords of 1, 2, ..., 256 bits under the best ranking: the counts, largest first."""
    return -jnp.sort(-counts, axis=-1)


def mean_length(counts: Float[Array, "*b symbol"]) -> Float[Array, "*b"]:
    """Mean bits per codeword under the best ranking, codebook left out; in [1, 256], 0 where nothing is counted.

    Differentiable in the counts; kinks where two counts tie, zeros included: the gradient there is that of the ranking by
    symbol value.
    """
    return _mean_of(code_length_counts(counts))


def _mean_of(ranked: Float[Array, "*b length"]) -> Array:
    """Mean length of the codewords; 0 without any."""
    lengths = jax.lax.broadcast_to_rank(jnp.arange(1, NUM_SYMBOLS + 1, dtype=ranked.dtype), ranked.ndim)
    total = jnp.sum(ranked, axis=-1)
    safe = jnp.where(total > 0, total, 1.0)
    return jnp.where(total > 0, jnp.sum(ranked * lengths, axis=-1) / safe, 0.0)


def mean_code_length(counts: Float[Array, "*b symbol"]) -> Float[Array, "*b"]:
    """Mean bits per coded exponent under the best ranking of these counts, codebook entries included.

    The expected size of the format. The codebook's share counts each symbol in proportion to min(count, 1), so that weights
    may fade a symbol out. Differentiable in the counts, with kinks where two counts tie (the gradient is that of the ranking
    by symbol value) and where a count is 1 (half the codebook entry's slope). Zero counts give zero, with zero gradient,
    although the limit of a single fading symbol is 9.
    """
    ranked = code_length_counts(counts)
    total = jnp.sum(ranked, axis=-1)
    codebook = CODEBOOK_ENTRY_BITS * jnp.sum(jnp.minimum(ranked, 1.0), axis=-1)
    safe = jnp.where(total > 0, total, 1.0)
    return jnp.where(total > 0, (_mean_of(ranked) * total + codebook) / safe, 0.0)
