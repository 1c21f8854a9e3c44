"""Blocks of a grid: runs of its points, in their order, that are grids themselves."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

__all__ = ["Blocks", "blocks_of"]


@dataclasses.dataclass(frozen=True)
class Blocks:
    """A block has one value of each axis before `divided`, up to `span` values of that one, and all values of those behind it.

    So what depends on some of the axes alone is computed once for their values, not once for each point.

    Attributes:
        shape: numbers of values of the axes, the last one changing fastest from point to point.
        divided: which axis.
        span: > 0.
    """

    shape: tuple[int, ...]
    divided: int
    span: int

    @property
    def block_shape(self) -> tuple[int, ...]:
        """Of a whole block, over `divided` and the axes behind it."""
        return (self.span, *self.shape[self.divided + 1 :])

    @property
    def count(self) -> int:
        """Number of blocks."""
        return math.prod(self.shape[: self.divided]) * self._pieces

    @property
    def _pieces(self) -> int:
        return -(-self.shape[self.divided] // self.span)

    def points_of(self, block: int) -> int:
        """Number of points of a block: the last one along `divided` may be short."""
        values = min(self.span, self.shape[self.divided] - block % self._pieces * self.span)
        return values * math.prod(self.shape[self.divided + 1 :])

    def places(self, block: int) -> list[np.ndarray]:
        """For each axis, which of its values the points of a block have.

        Returns:
            indices that broadcast to `block_shape`. What is missing to a whole block repeats the last value.
        """
        before, piece = divmod(block, self._pieces)
        rank = len(self.block_shape)
        first = np.unravel_index(before, self.shape[: self.divided]) if self.divided else ()
        along = np.minimum(piece * self.span + np.arange(self.span), self.shape[self.divided] - 1)
        behind = [np.arange(size) for size in self.shape[self.divided + 1 :]]
        inner = [values.reshape(-1, *[1] * (rank - 1 - i)) for i, values in enumerate([along, *behind])]
        return [*map(np.asarray, first), *inner]


def blocks_of(shape: Sequence[int], most: int) -> Blocks:
    """Blocks of at most `most` points, as large as whole axes and nearly equal pieces of one allow.

    Args:
        shape: numbers of values of one axis or more.
        most: > 0.
    """
    divided, behind = len(shape) - 1, 1
    while divided and behind * shape[divided] <= most:
        behind *= shape[divided]
        divided -= 1
    pieces = -(-shape[divided] // (most // behind))
    return Blocks(tuple(shape), divided, -(-shape[divided] // pieces))
