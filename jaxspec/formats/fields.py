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
from jaxtyping import Array, Float, Int, UInt

from jaxspec.formats.entropy import entropy_bits, entropy_of, histogram

__all__ = ["entropies", "expected_bits", "merge", "num_bits", "parse_widths", "split"]

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
