"""Axes that no result of a sweep depends on: found while its points are read, one piece after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

__all__ = ["InertAxes"]

#: Odd, so that no product loses bits: 2^64 over the golden ratio, as in Fibonacci hashing (Knuth, vol. 3, sec. 6.4).
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class InertAxes:
    """Axes with several values all of which have the same results.

    A number stands for the results of a point and where it lies on the other axes. Its sum over all points with a value of an
    axis is the same for every value where no result depends on the axis; it wraps around in 64 bits, so that points may come in
    any order.
    """

    def __init__(self, axes: Iterable[str]):
        self._axes = tuple(axes)
        self._sums: dict[str, dict[float, int]] = {name: {} for name in self._axes}
        self._first: dict[str, tuple[int, int]] = {}

    def add(self, columns: Mapping[str, np.ndarray]) -> None:
        """Take in more points. Args: columns: axes, results, and names, which are left out: "point"."""
        if not self._sums:
            return
        results = _mixed(values for name, values in columns.items() if name not in self._axes and _is_number(values))
        own = {name: _mixed([columns[name]]) for name in self._axes}
        place = np.sum(list(own.values()), axis=0, dtype=np.uint64)
        for name, sums in list(self._sums.items()):
            values, which = _distinct(columns[name])
            others = place - own[name]
            where = _sums_by(which, others, len(values))
            found = _sums_by(which, _mixed([others, results]), len(values))
            first = self._first.setdefault(name, (where[0], found[0]))
            if any(one[0] == first[0] and one != first for one in zip(where, found, strict=True)):
                del self._sums[name]  # the same points but for this axis, and other results: soon known of most axes
                continue
            for value, one in zip(values.tolist(), found, strict=True):
                sums[value] = (sums.get(value, 0) + one) % 2**64

    @property
    def remarks(self) -> list[str]:
        """A sentence, where there are any among all points so far."""
        inert = [name for name, sums in self._sums.items() if len(sums) > 1 and len(set(sums.values())) == 1]
        return [f"no result depends on {', '.join(inert)} here: all values give the same points"] if inert else []


def _is_number(values: np.ndarray) -> bool:
    return values.dtype.kind in "bif"


def _mixed(columns: Iterable[np.ndarray]) -> np.ndarray:
    """A number of 64 bits for each point, " point". Args: columns: numbers, or what this returned."""
    found = np.uint64(0)
    for values in columns:
        bits = values if values.dtype == np.uint64 else np.asarray(values, np.float64).view(np.uint64)
        found = (found ^ bits) * _MULTIPLIER
        found = found ^ (found >> np.uint64(29))
    return np.asarray(found)


def _sums_by(which: np.ndarray, points: np.ndarray, count: int) -> list[int]:
    """Sums of points with the same value, in 64 bits. Args: which: number of each point's value, below `count`."""
    found = np.zeros(count, np.uint64)
    np.add.at(found, which, points)
    return found.tolist()


def _distinct(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values that occur, and which of them each point has; most axes have one in a piece."""
    if np.all(values == values[0]):
        return values[:1], np.zeros(len(values), np.int64)
    return np.unique(values, return_inverse=True)
