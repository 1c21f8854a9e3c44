"""Bit fields: patterns cut into groups of bits, most significant first, put together again, and measured one by one.

A partition is written as its widths: 1-8-7 (sign, exponent and mantissa of bfloat16), 1-5-5-5 and 1-4-4-7 (Huff-LLM's
splits of float16 and bfloat16), 8-8 (bytes), 4-4 (nibbles of int8). Entropies of the fields are measured apart and may be
added: the sum is what coding each field alone costs at least, never less than the entropy of the whole pattern.

Source: Huff-LLM, 3.1 and its splits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num, UInt

__all__ = [
    "counted_entropy_bits",
    "entropies",
    "entropy_bits",
    "entropy_of",
    "expected_bits",
    "histogram",
    "merge",
    "num_bits",
    "parse_widths",
    "split",
]

# Shannon entropy in bits: the lower bound on the mean length of a code that codes one symbol at a time.


def histogram(symbols: Int[Array, "*b n"] | UInt[Array, "*b n"], num_symbols: int) -> Int[Array, "*b symbol"]:
    """Occurrences of the symbols 0 to num_symbols - 1 in each row; other symbols are not counted.

    Args:
        num_symbols: static int >= 1.
    Raises:
        ValueError: num_symbols < 1.
    """
    if num_symbols < 1:
        raise ValueError(f"num_symbols is {num_symbols}; at least one symbol must be counted")
    lead = symbols.shape[:-1]
    flat = symbols.reshape(math.prod(lead), symbols.shape[-1])
    # An index past the end is dropped; a negative one would be counted from the end, but is past it without a sign.
    place = jnp.where(flat.astype(jnp.uint32) < num_symbols, flat.astype(jnp.int32), num_symbols)
    row = jnp.arange(flat.shape[0], dtype=jnp.int32)[:, None]
    counts = jnp.zeros((flat.shape[0], num_symbols), jnp.int32).at[row, place].add(1, mode="drop")
    return counts.reshape(*lead, num_symbols)


def entropy_of(probabilities: Float[Array, ...], axis: int = -1) -> Float[Array, ...]:
    """Entropy in bits of probability vectors, which are taken as they are: nothing is normalised.

    Differentiable: the slope at p > 0 is -log2 p - 1/ln 2. At p = 0 it is infinite; given there (and below the smallest
    normal number) is the slope of the chord from 0 to the smallest normal number, -log2 of it: 126 in float32, 1022 in
    float64. It is positive and finite, so that a masked symbol does not turn a whole gradient into NaN.
    """
    smallest = jnp.finfo(probabilities.dtype).tiny
    # A `where` and not `maximum`: that would halve the slope where its arguments are equal.
    logarithm = jnp.log2(jnp.where(probabilities > smallest, probabilities, smallest))
    return jnp.sum(probabilities * -logarithm, axis=axis)


def entropy_bits(counts: Num[Array, ...], axis: int = -1) -> Float[Array, ...]:
    """Entropy in bits per symbol of an alphabet with these counts, along one axis.

    Differentiable in floating-point counts; at a count of 0 the slope is infinite, see `entropy_of` for what is given.

    Args:
        counts: >= 0; integers are taken as float32. Where all are 0 the entropy is 0 (and so is its gradient).
    """
    counts = counts if jnp.issubdtype(counts.dtype, jnp.floating) else counts.astype(jnp.float32)
    total = jnp.sum(counts, axis=axis, keepdims=True)
    share = jnp.where(total > 0, counts / jnp.where(total > 0, total, 1), 0)
    return entropy_of(share, axis=axis)


def counted_entropy_bits(counts: Int[np.ndarray, " symbol"]) -> float:
    """`entropy_bits` of exact counts on the host, in float64: counts above 2^24 stay exact, and nothing is compiled."""
    occurring = counts[counts > 0].astype(np.float64)
    share = occurring / max(1.0, float(occurring.sum()))
    return float(-np.sum(share * np.log2(share)))


#: Widest field whose values are counted in a table; the values of wider ones are sorted and their runs counted.
_WIDEST_TABLE = 16


def parse_widths(text: str) -> tuple[int, ...]:
    """The widths that a text such as "1-5-5-5" names.

    Raises:
        ValueError: anything but positive whole numbers between hyphens.
    """
    parts = text.split("-")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"{text!r} is no partition; write positive widths between hyphens, such as 1-5-5-5")
    return tuple(int(part) for part in parts)


def split(bits: UInt[Array, "*b"], widths: Sequence[int]) -> tuple[UInt[Array, "*b"], ...]:
    """The fields of patterns, most significant first.

    A plain tuple, because its length is that of `widths` and the fields have no names of their own.

    Args:
        bits: uint8, uint16 or uint32.
        widths: static; positive, in all the width of `bits`.
    Returns:
        One array for each width, in the smallest unsigned dtype that holds it.
    Raises:
        ValueError: the widths do not make up the pattern's width, or signed integers, which are values and not patterns.
    """
    if not jnp.issubdtype(bits.dtype, jnp.unsignedinteger):
        raise ValueError(
            f"patterns of dtype {bits.dtype} came; allowed are uint8, uint16 and uint32: use patterns.to_bits"
        )
    total = jnp.iinfo(bits.dtype).bits
    _check(widths, f"patterns of dtype {bits.dtype}", {total})
    below = np.cumsum(np.append(np.asarray(widths)[1:], 0)[::-1])[::-1]
    mask = [(1 << width) - 1 for width in widths]
    return tuple(
        ((bits >> bits.dtype.type(shift)) & bits.dtype.type(ones)).astype(_dtype(width))
        for width, shift, ones in zip(widths, below, mask)
    )


def merge(fields: Sequence[UInt[Array, "*b"]], widths: Sequence[int]) -> UInt[Array, "*b"]:
    """The patterns of fields; the inverse of `split`.

    Args:
        fields: most significant first, each below 2^width (higher bits are not masked off).
        widths: static; one for each field, in all 8, 16 or 32.
    Raises:
        ValueError: another number of fields than of widths, or widths that make up no pattern.
    """
    if len(fields) != len(widths):
        raise ValueError(f"{len(fields)} fields came with {len(widths)} widths; give one width for each field")
    _check(widths, "patterns", {8, 16, 32})
    dtype = _dtype(sum(widths))
    bits = fields[0].astype(dtype)
    for field, width in zip(fields[1:], widths[1:]):
        bits = (bits << dtype.type(width)) | field.astype(dtype)
    return bits


def entropies(bits: UInt[Array, "*b"], widths: Sequence[int]) -> Float[Array, " field"]:
    """Shannon entropy of each field in bits per value, over all patterns; zeros for an empty array.

    Raises:
        ValueError: the widths do not make up the pattern's width.
    """
    counts = (_counts(field.reshape(-1), width) for field, width in zip(split(bits, widths), widths))
    return jnp.stack([entropy_bits(count) for count in counts])


def num_bits(shape: Sequence[int], widths: Sequence[int]) -> int:
    """Bits of an array of this shape whose fields are stored as they are; exact on the host."""
    return math.prod(shape) * sum(widths)


def expected_bits(probabilities: Float[Array, "*b symbol"]) -> Float[Array, "*b"]:
    """Least expected bits per value of a field whose symbols have these probabilities: their entropy.

    Differentiable; the slope is infinite at a probability of 0, where the chord's to the smallest normal number is given
    (see `entropy.entropy_of`).
    """
    return entropy_of(probabilities)


def _dtype(width: int) -> np.dtype:
    return np.dtype(np.uint8 if width <= 8 else np.uint16 if width <= 16 else np.uint32)


def _check(widths: Sequence[int], what: str, allowed: set[int]) -> None:
    if any(width < 1 for width in widths) or sum(widths) not in allowed:
        sums = " or ".join(map(str, sorted(allowed)))
        named = "-".join(map(str, widths))
        raise ValueError(f"widths {named} came for {what}; they must be positive and sum to {sums}")


def _counts(field: UInt[Array, " n"], width: int) -> Int[Array, " symbol"]:
    """Occurrences of each value that a field takes, in any order, zeros among them."""
    if width <= _WIDEST_TABLE:
        return histogram(field, 1 << width)
    ordered = jnp.sort(field)
    run = jnp.cumsum((ordered[1:] != ordered[:-1]).astype(jnp.int32))
    run = jnp.concatenate([jnp.zeros(min(field.size, 1), jnp.int32), run])
    return jnp.zeros(max(field.size, 1), jnp.int32).at[run].add(1)
