"""Which measured rows to fit to, the others being held out: whole shapes of weight matrices, never single rows.

Rows of one matrix at neighbouring numbers of tokens are nearly copies of each other, so that a split by row tests nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["half_of_groups", "half_of_shapes", "largest_held_out", "shape_names", "some_of"]


def half_of_shapes(
    k: npt.ArrayLike, n: npt.ArrayLike, *, seed: int = 0, complement: bool = False
) -> npt.NDArray[np.bool_]:
    """Rows of half of the (k, n) shapes, drawn by a hash that is the same on every machine.

    Args:
        k, n: "row", sides of each row's weight matrix.
        seed: which of the splits.
        complement: the other half.
    Returns:
        "row", true where the row is fitted to; half of the shapes, rounded down (up in the complement).
    """
    return half_of_groups(_names(k, n), seed=seed, complement=complement)


def half_of_groups(labels: Sequence[str], *, seed: int = 0, complement: bool = False) -> npt.NDArray[np.bool_]:
    """Rows of half of the groups, as `half_of_shapes` draws shapes.

    Args:
        labels: "row", name of each row's group.
        seed, complement: as of `half_of_shapes`.
    """
    unique = sorted(set(labels), key=lambda label: hashlib.sha256(f"{seed}:{label}".encode()).hexdigest())
    chosen = set(unique[: len(unique) // 2])
    return np.array([(label in chosen) != complement for label in labels], bool)


def largest_held_out(k: npt.ArrayLike, n: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """All rows but those of the largest k and of the largest n: does the model reach beyond what it was fitted to?"""
    k, n = np.asarray(k), np.asarray(n)
    return (k < k.max()) & (n < n.max())


def some_of(rows: npt.NDArray[np.bool_], count: int) -> npt.NDArray[np.bool_]:
    """At most `count` of the rows, the same on every machine: "row"."""
    indices = np.flatnonzero(rows)
    if len(indices) <= count:
        return rows
    chosen = np.zeros_like(rows)
    chosen[np.random.default_rng(0).choice(indices, count, replace=False)] = True
    return chosen


def shape_names(table: Any) -> list[str]:
    """Name of the weight matrix of each row of a table with k and n."""
    return _names(table.k, table.n)


def _names(k: npt.ArrayLike, n: npt.ArrayLike) -> list[str]:
    shapes = zip(np.asarray(k).astype(np.int64).tolist(), np.asarray(n).astype(np.int64).tolist())
    return [f"{one}x{other}" for one, other in shapes]
