"""From the best draft length at each batch to ranges of batches, and to one length for all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from jaxspec.studies.engine_flags import Range

__all__ = ["ranges", "single_length"]


def ranges(batches: Sequence[int], lengths: Sequence[int]) -> list[Range]:
    """Ranges of batches, from 1 to the last, each with the draft length of the largest asked-for batch at or below it.

    Args:
        batches: rising; batches below the first take its length.
        lengths: of each, 0 for no speculation.
    """
    found: list[Range] = []
    for index, (batch, length) in enumerate(zip(batches, lengths, strict=True)):
        last = batches[index + 1] - 1 if index + 1 < len(batches) else batch
        if found and found[-1].draft_length == length:
            found[-1] = Range(found[-1].first, last, length)
        else:
            found.append(Range(batch if found else 1, last, length))
    return found


def single_length(speedups: Float[np.ndarray, "batch length"]) -> int:
    """The draft length with the highest mean log speedup over all batches; 0 where none is above 0.

    Args:
        speedups: of draft lengths 1, 2, ...
    """
    gains = np.mean(np.log(speedups), axis=0)
    return int(np.argmax(gains)) + 1 if gains.max() > 0 else 0
