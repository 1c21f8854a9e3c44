"""Shannon entropy in bits: the lower bound on the mean length of a code that codes one symbol at a time.

Source: Cassandra, IV-B (the bound), Huff-LLM, 3.1 (entropies of bit groups). H = - sum_s p_s log2 p_s.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num, UInt

__all__ = ["counted_entropy_bits", "entropy_bits", "entropy_of", "histogram"]


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
