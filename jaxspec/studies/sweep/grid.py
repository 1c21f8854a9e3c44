"""The points of a sweep in their order, divided into chunks that one program evaluates, and chunks into shards."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import jax
import numpy as np

from hwmodels.analysis.uncertainty.kernel_errors import times_have_errors
from jaxspec.studies.sweep.axes import DerivedNumbers
from jaxspec.studies.sweep.evaluating import begin_points

__all__ = ["CHUNK", "Grid"]

#: Points that a device evaluates at a time: enough to fill the cores, few enough for their caches.
CHUNK = 32_768


@dataclasses.dataclass(frozen=True)
class Grid:
    """Every combination of the axes for each pair of a network and a device. Chunks are numbered through all pairs.

    A chunk holds the next `CHUNK` points of one pair, the last one of a pair what is left of them.

    Attributes:
        axes: dotted name -> values.
        pairs: names of network and device.
        bases: of each pair, the tree whose leaves axes are named by.
        derived: numbers that follow from the axes.
        scatter: of the engine's cycles, for intervals.
    """

    axes: dict[str, np.ndarray]
    pairs: list[tuple[str, str]]
    bases: list[dict[str, Any]]
    max_draft_length: int
    derived: DerivedNumbers = dataclasses.field(default_factory=DerivedNumbers)
    scatter: float = 0.0

    @cached_property
    def has_intervals(self) -> bool:
        """Whether a device's times are known to err."""
        return any(times_have_errors(base["device"]) for base in self.bases)

    @cached_property
    def points_per_pair(self) -> int:
        """Number of combinations of the axes."""
        return math.prod(len(values) for values in self.axes.values())

    @cached_property
    def chunks_per_pair(self) -> int:
        """Number of chunks of a pair."""
        return -(-self.points_per_pair // CHUNK)

    def shard(self, number: int = 1, shards: int = 1) -> range:
        """Chunks of one of several shards, numbered from 1; shards differ by at most one chunk and follow one another."""
        total = self.chunks_per_pair * len(self.pairs)
        return range((number - 1) * total // shards, number * total // shards)

    def points_of(self, chunks: range) -> int:
        """Number of points of some chunks."""
        return sum(self._count(chunk) for chunk in chunks)

    def _count(self, chunk: int) -> int:
        return min(CHUNK, self.points_per_pair - chunk % self.chunks_per_pair * CHUNK)

    def columns(self, chunks: range) -> Iterator[dict[str, np.ndarray]]:
        """Names, axes and results of each chunk.

        Every call of the program has the same shape per device, so that results depend neither on the chunk nor on the number
        of devices. The next call is on its way while a chunk is used.
        """
        devices = jax.local_devices()
        calls = [chunks[i : i + len(devices)] for i in range(0, len(chunks), len(devices))]
        begun = [part for call in calls for part in self._by_pair(call)]
        waiting = None
        for call in begun:
            following = self._begin(call, devices)
            if waiting is not None:
                yield from waiting()
            waiting = following
        if waiting is not None:
            yield from waiting()

    def _by_pair(self, chunks: range) -> list[range]:
        """The same chunks, those of each pair apart."""
        ends = [i for i in range(1, len(chunks)) if chunks[i] % self.chunks_per_pair == 0]
        return [chunks[a:b] for a, b in zip([0, *ends], [*ends, len(chunks)], strict=True)]

    def _begin(self, chunks: range, devices: list[Any]) -> Any:
        pair = chunks[0] // self.chunks_per_pair
        start = chunks[0] % self.chunks_per_pair * CHUNK
        shape = tuple(len(values) for values in self.axes.values())
        # What is missing to full devices repeats the last point.
        numbers = np.minimum(start + np.arange(CHUNK * len(devices)), self.points_per_pair - 1)
        places = np.unravel_index(numbers, shape)
        varied = {name: values[place] for (name, values), place in zip(self.axes.items(), places, strict=True)}
        # A leaf more that varies costs a column of memory; knobs of widths are read by nothing but the derived numbers.
        own = varied | self.derived.at(dict(zip(self.axes, places, strict=True)))
        asked: dict[str, Any] = {"max_draft_length": self.max_draft_length, "devices": devices}
        wait = begin_points(self.bases[pair], own, intervals=self.has_intervals, scatter=self.scatter, **asked)
        names = dict(zip(("architecture", "device"), self.pairs[pair], strict=True))

        def columns() -> Iterator[dict[str, np.ndarray]]:
            found = varied | wait()
            for i, chunk in enumerate(chunks):
                part = slice(i * CHUNK, i * CHUNK + self._count(chunk))
                count = part.stop - part.start
                yield {name: np.full(count, value) for name, value in names.items()} | {
                    name: values[part] for name, values in found.items()
                }

        return columns
