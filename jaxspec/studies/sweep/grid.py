"""The points of a sweep in their order, divided into chunks that one program evaluates, and chunks into shards."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import jax
import numpy as np

from jaxspec.studies.sweep.axes import DerivedNumbers
from jaxspec.studies.sweep.blocks import Blocks, blocks_of
from jaxspec.studies.sweep.evaluating import begin_points

__all__ = ["CHUNK", "Grid"]

#: Most points that a device evaluates at a time: enough to fill the cores, few enough for their caches.
CHUNK = 32_768


@dataclasses.dataclass(frozen=True)
class Grid:
    """Every combination of the axes for each pair of a network and a device. Chunks are numbered through all pairs.

    A chunk is a block of the points of one pair: see `Blocks`.

    Attributes:
        axes: dotted name -> values.
        pairs: names of network and device.
        bases: of each pair, the tree whose leaves axes are named by.
        derived: numbers that follow from the axes.
    """

    axes: dict[str, np.ndarray]
    pairs: list[tuple[str, str]]
    bases: list[dict[str, Any]]
    max_draft_length: int
    derived: DerivedNumbers = dataclasses.field(default_factory=DerivedNumbers)

    @cached_property
    def blocks(self) -> Blocks:
        """How the points of a pair are divided."""
        return blocks_of([len(values) for values in self.axes.values()], CHUNK)

    @property
    def chunks_per_pair(self) -> int:
        """Number of chunks of a pair."""
        return self.blocks.count

    def shard(self, number: int = 1, shards: int = 1) -> range:
        """Chunks of one of several shards, numbered from 1; shards differ by at most one chunk and follow one another."""
        total = self.chunks_per_pair * len(self.pairs)
        return range((number - 1) * total // shards, number * total // shards)

    def points_of(self, chunks: range) -> int:
        """Number of points of some chunks."""
        return sum(self.blocks.points_of(chunk % self.chunks_per_pair) for chunk in chunks)

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
        numbers = [chunk % self.chunks_per_pair for chunk in chunks]
        # What is missing to full devices repeats the last block.
        blocks = [*numbers, *[numbers[-1]] * (len(devices) - len(numbers))]
        places = dict(zip(self.axes, self.blocks.places(blocks), strict=True))
        varied = {name: values[places[name]] for name, values in self.axes.items()}
        # Knobs of widths are read by nothing but the derived numbers.
        own = varied | self.derived.at(places)
        shape = (len(blocks), *self.blocks.block_shape)
        wait = begin_points(self.bases[pair], own, shape=shape, max_draft_length=self.max_draft_length, devices=devices)
        names = dict(zip(("architecture", "device"), self.pairs[pair], strict=True))

        def columns() -> Iterator[dict[str, np.ndarray]]:
            found = {name: np.broadcast_to(values, shape) for name, values in varied.items()} | wait()
            for i, number in enumerate(numbers):
                count = self.blocks.points_of(number)
                yield {name: np.full(count, value) for name, value in names.items()} | {
                    name: values[i].reshape(-1)[:count] for name, values in found.items()
                }

        return columns
