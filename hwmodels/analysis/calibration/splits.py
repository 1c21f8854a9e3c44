"""Which measured rows to fit to, the others being held out: whole shapes of weight matrices, never single rows.

Rows of one matrix at neighbouring numbers of tokens are nearly copies of each other, so that a split by row tests nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["half_of_groups", "half_of_shapes", "largest_held_out"]


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
    return half_of_groups([f"{shape[0]}x{shape[1]}" for shape in _shapes(k, n)], seed=seed, complement=complement)


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


def _shapes(k: npt.ArrayLike, n: npt.ArrayLike) -> list[tuple[int, int]]:
    return list(zip(np.asarray(k).astype(np.int64).tolist(), np.asarray(n).astype(np.int64).tolist()))
