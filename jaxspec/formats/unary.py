"""Lengths of the unary exponent code: the symbol of rank r (by falling frequency) costs r + 1 bits.

Source: Cassandra, IV-B and Fig. 5 (1, 01, 001, ...). Only sizes here; the streams themselves are a format of their own.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

#: Bits of one codebook entry: the exponent that a rank stands for.
CODEBOOK_ENTRY_BITS = 8

NUM_SYMBOLS = 256


def weighted_counts(symbols: Int[Array, "*b n"], weights: Float[Array, "*b n"]) -> Float[Array, "*b symbol"]:
    """Occurrences of each of the 256 exponents, each value counted with its weight (0 to 1)."""
    lead = symbols.shape[:-1]
    flat = symbols.reshape(-1, symbols.shape[-1]).astype(jnp.int32)
    rows = jnp.arange(flat.shape[0], dtype=jnp.int32)[:, None] * NUM_SYMBOLS
    counts = jnp.zeros(flat.shape[0] * NUM_SYMBOLS, weights.dtype)
    counts = counts.at[(flat + rows).reshape(-1)].add(weights.reshape(-1))
    return counts.reshape(*lead, NUM_SYMBOLS)


def mean_code_length(counts: Float[Array, "*b symbol"]) -> Float[Array, "*b"]:
    """Mean bits per coded exponent under the best ranking of these counts, codebook entries included.

    Differentiable in the counts almost everywhere (continuous where two counts tie and the ranking flips). The codebook's
    share counts each symbol in proportion to min(count, 1), so that weights may fade a symbol out. Zero counts give zero.
    """
    ranked = -jnp.sort(-counts, axis=-1)
    total = jnp.sum(ranked, axis=-1)
    code = jnp.sum(ranked * jnp.arange(1, NUM_SYMBOLS + 1, dtype=ranked.dtype), axis=-1)
    codebook = CODEBOOK_ENTRY_BITS * jnp.sum(jnp.minimum(ranked, 1.0), axis=-1)
    safe = jnp.where(total > 0, total, 1.0)
    return jnp.where(total > 0, (code + codebook) / safe, 0.0)
