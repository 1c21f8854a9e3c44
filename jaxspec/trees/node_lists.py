"""Lists that describe a tree, as users write them, checked on the host."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np

__all__ = ["check_ranks", "rank_path", "whole_numbers"]

#: Trees are arrays of 32-bit numbers.
_LARGEST = np.iinfo(np.int32).max


def rank_path(ranks: Sequence[int]) -> tuple[int, ...]:
    """The ranks from the root down to a node, as a key.

    Raises:
        ValueError: no list of whole numbers.
    """
    try:
        return tuple(operator.index(rank) for rank in ranks)
    except TypeError:
        raise ValueError(f"path {ranks!r} must be a list of ranks, whole numbers, as in (0, 2)") from None


def whole_numbers(name: str, values: Sequence[int] | np.ndarray) -> np.ndarray:
    """One entry for each node.

    Raises:
        ValueError: no list of whole numbers, or one that 32 bits do not hold.
    """
    array = np.asarray(values)
    if array.ndim != 1 or array.size == 0 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name} is {values!r}; it must be a list of one or more whole numbers")
    farthest = max(array.tolist(), key=abs)
    if abs(farthest) > _LARGEST:
        raise ValueError(f"{name} holds {farthest}; numbers of a tree have 32 bits")
    return array.astype(np.int64)


def check_ranks(parents: np.ndarray, ranks: np.ndarray) -> None:
    """Ranks are not negative and differ among siblings.

    Raises:
        ValueError: they are, or do not.
    """
    seen: dict[tuple[int, int], int] = {}
    for node, (above, rank) in enumerate(zip(parents.tolist(), ranks.tolist())):
        if rank < 0:
            raise ValueError(f"rank[{node}] is {rank}; ranks count from 0")
        if (above, rank) in seen:
            raise ValueError(
                f"nodes {seen[above, rank]} and {node} are siblings of rank {rank}; give them different ranks"
            )
        seen[above, rank] = node
