"""The hard choice of `selection` for whole matrices on the host, where partitions of rows take a tenth of the time.

Inside compiled programs the values at a rank are found by bisection: one pass over the row for each bit of a score.
"""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, UInt

from jaxspec.compress.schemes import Scheme
from jaxspec.compress.selection import log_of, ordered_pattern, wanda_score

__all__ = ["keep_largest_of_rows", "wanda_ranking"]


@partial(jax.jit, static_argnames="scheme")
def wanda_ranking(
    values: Float[Array, "row column"], channel_norm: Float[Array, " column"], *, scheme: Scheme
) -> UInt[Array, "row column"]:
    """Unsigned integers in the order of the scores that a scheme's drafts are ranked by."""
    return ordered_pattern(log_of(wanda_score(scheme.matrix.target(values), channel_norm)))


def keep_largest_of_rows(magnitude: UInt[np.ndarray, "row column"], keep: int) -> Bool[np.ndarray, "row column"]:
    """Mask of the `keep` largest of each row, of equal ones those to the right: `selection.keep_largest` on the host.

    Args:
        keep: 0 to the row's length.
    """
    rows, columns = magnitude.shape
    if keep in (0, columns):
        return np.full(magnitude.shape, keep > 0)
    limit = np.partition(magnitude, columns - keep, axis=1)[:, columns - keep, None]
    mask = magnitude >= limit
    too_many = np.count_nonzero(mask, axis=1) - keep
    tied = np.flatnonzero(magnitude == limit)  # row after row, each from the left
    row = tied // columns
    in_row = np.arange(tied.size) - np.searchsorted(row, np.arange(rows))[row]
    mask.reshape(-1)[tied[in_row < too_many[row]]] = False
    return mask
