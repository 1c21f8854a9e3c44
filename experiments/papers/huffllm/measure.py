"""What weights cost in a split: entropies, Huffman bits and ratios, all from the occurrences of the 65,536 patterns."""

from __future__ import annotations

from functools import cache

import jax.numpy as jnp
import numpy as np

from jaxspec.formats import fields, huffman
from jaxspec.formats.entropy import entropy_bits
from jaxspec.formats.huffman_columns import SPLITS
from jaxspec.formats.unary import NUM_SYMBOLS, mean_code_length

__all__ = ["coded_bits", "field_counts", "field_entropies", "huffman_bits", "mean_unary_length", "pattern_counts"]

NUM_PATTERNS = 1 << 16


def pattern_counts(patterns: np.ndarray) -> np.ndarray:
    """Occurrences of every pattern in each matrix, [matrix, pattern]."""
    return np.stack([np.bincount(matrix.reshape(-1), minlength=NUM_PATTERNS) for matrix in patterns])


@cache
def _fields_of_patterns(widths: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(field) for field in fields.split(jnp.arange(NUM_PATTERNS, dtype=jnp.uint16), widths))


def field_counts(counts: np.ndarray, widths: tuple[int, ...]) -> list[np.ndarray]:
    """Occurrences of every value of each field, from those of one matrix's patterns."""
    groups = zip(_fields_of_patterns(widths), widths)
    # Weights of bincount are float64, which counts exactly.
    return [np.bincount(field, counts, minlength=1 << width).astype(np.int64) for field, width in groups]


def field_entropies(counts: np.ndarray, widths: tuple[int, ...]) -> np.ndarray:
    """Entropy of each field in bits, as the mean over the matrices."""
    entropies = [[float(entropy_bits(jnp.asarray(c, jnp.float32))) for c in field_counts(m, widths)] for m in counts]
    return np.mean(entropies, axis=0)


def coded_bits(counts: np.ndarray, stored: str) -> np.ndarray:
    """Bits per weight of each field of the paper's split of a format, [matrix, field]; fields that are not coded are raw."""
    split = SPLITS[stored]

    def bits(occurrences: np.ndarray, width: int, coded: bool) -> float:
        return huffman.mean_length(occurrences, huffman.code_lengths(occurrences)) if coded else float(width)

    rows = (zip(field_counts(matrix, split.widths), split.widths, split.coded) for matrix in counts)
    return np.array([[bits(*field) for field in row] for row in rows])


def huffman_bits(counts: np.ndarray, stored: str) -> float:
    """Bits per weight as the paper defines them: 16 over the ratio, averaged over the matrices."""
    return float(16 / np.mean(16 / coded_bits(counts, stored).sum(axis=1)))


def mean_unary_length(counts: np.ndarray) -> float:
    """Bits per unary-coded exponent of bfloat16 patterns, codebooks included; mean over the matrices."""
    exponents = np.stack([field_counts(matrix, (1, NUM_SYMBOLS.bit_length() - 1, 7))[1] for matrix in counts])
    return float(jnp.mean(mean_code_length(jnp.asarray(exponents, jnp.float32))))
