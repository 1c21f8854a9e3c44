"""Fixed-width fields packed without gaps into 32-bit words, first bit highest.

The planes of sign, mantissa and truncated bits are stored this way. 32 values of any width fill `width` whole words, so that
both directions are a fixed pattern of shifts over groups of 32 values, without any scatter or gather.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt, UInt16, UInt32

__all__ = ["expected_bits", "num_bits", "num_words", "pack", "unpack"]

_WORD_BITS = 32


def _check_width(width: int) -> None:
    if not 1 <= width <= 16:
        raise ValueError(f"width {width} came; allowed are 1 to 16 bits: split wider fields")


def num_words(count: int, width: int) -> int:
    """Words that `count` values of `width` bits fill, the last one padded with zeros."""
    return -(-count * width // _WORD_BITS)


def num_bits(count: int, width: int) -> int:
    """Bits that packed values take where they are stored: whole words."""
    return _WORD_BITS * num_words(count, width)


def expected_bits(count: Float[Array, "*b"], width: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """Bits without the padding of the last word; bilinear, so its gradient is exact everywhere."""
    return count * width


def pack(values: UInt[Array, " n"], *, width: int) -> UInt32[Array, " word"]:
    """The low `width` bits of each value, one after the other.

    Args:
        values: "n" of any unsigned type; higher bits are ignored.
        width: static, 1 to 16.
    Raises:
        ValueError: another width.
    """
    _check_width(width)
    n = values.shape[0]
    groups = -(-n // _WORD_BITS)
    wide = jnp.zeros(groups * _WORD_BITS, jnp.uint32).at[:n].set(values.astype(jnp.uint32) & ((1 << width) - 1))
    wide = wide.reshape(groups, _WORD_BITS)
    words = []
    for index in range(width):
        word = jnp.zeros(groups, jnp.uint32)
        for place in range(index * _WORD_BITS // width, _WORD_BITS):
            # The value's lowest bit lies this far above the word's lowest bit.
            shift = (index + 1) * _WORD_BITS - (place + 1) * width
            if shift <= -width:
                break
            word = word | (wide[:, place] << shift if shift >= 0 else wide[:, place] >> -shift)
        words.append(word)
    return jnp.stack(words, axis=1).reshape(-1)[: num_words(n, width)]


def unpack(words: UInt32[Array, " word"], *, width: int, count: int) -> UInt16[Array, " count"]:
    """The values; inverse of `pack`.

    Args:
        width, count: static.
    Raises:
        ValueError: another width, or a number of words that does not belong to that many values.
    """
    _check_width(width)
    if words.shape[0] != num_words(count, width):
        raise ValueError(
            f"{words.shape[0]} words came for {count} values of {width} bits; {num_words(count, width)} hold them: "
            "give the words that pack made"
        )
    groups = -(-count // _WORD_BITS)
    wide = jnp.zeros(groups * width, jnp.uint32).at[: words.shape[0]].set(words).reshape(groups, width)
    # Where each of 32 values begins is a constant; those that reach into a second word take it from there.
    first, bit = np.divmod(np.arange(_WORD_BITS) * width, _WORD_BITS)
    second = np.minimum(first + 1, width - 1)
    left = (wide[:, first] << bit[None].astype(np.uint32)) >> np.uint32(_WORD_BITS - width)
    overhang = (bit + width - _WORD_BITS)[None]
    right = jnp.where(overhang > 0, wide[:, second] >> (-overhang % _WORD_BITS).astype(np.uint32), 0)
    return (left | right).astype(jnp.uint16).reshape(-1)[:count]
