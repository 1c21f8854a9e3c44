"""How often each value of each bit field occurs in a tensor, exactly."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

import numpy as np

from jaxspec.formats.container.codec import occurrences

__all__ = ["field_counts"]

#: Chunks of fewer elements are counted field by field: going through all patterns of 16 bits would take longer.
_FEW_ELEMENTS = 1 << 14


def field_counts(chunks: Iterable[np.ndarray], widths: tuple[int, ...]) -> list[np.ndarray]:
    """Occurrences of each value of each field, exact; by way of the patterns' 16-bit halves, which are counted once.

    Raises:
        ValueError: a field that crosses the border between two halves.
    """
    bits, ends = sum(widths), list(accumulate(widths))
    for width, end in zip(widths, ends):
        if width > min(bits, 16) or end - width < 16 * ((end - 1) // 16):
            raise ValueError(f"field of {width} bits crosses a 16-bit half; allowed are fields within one: split it")
    counts, halves = [np.zeros(1 << width, np.int64) for width in widths], []
    for chunk in chunks:
        if chunk.size < _FEW_ELEMENTS:
            for width, end, counted in zip(widths, ends, counts):
                counted += np.bincount(chunk >> (bits - end) & ((1 << width) - 1), minlength=1 << width)
            continue
        parts = [chunk] if bits <= 16 else [(chunk >> 16).astype(np.uint16), (chunk & 0xFFFF).astype(np.uint16)]
        found = [occurrences(part, 1 << min(bits, 16)) for part in parts]
        halves = [a + b for a, b in zip(halves, found)] if halves else found
    for width, end, counted in zip(widths, ends, counts if halves else ()):
        half, below = divmod(end - 1, 16)
        values = np.arange(1 << min(bits, 16)) >> (min(bits, 16) - 1 - below) & ((1 << width) - 1)
        counted += np.bincount(values, weights=halves[half], minlength=1 << width).astype(np.int64)
    return counts
