"""The points of a sweep in their order, divided into chunks that one program evaluates, and chunks into shards."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any

import jax
import numpy as np
import pyarrow as pa

from hwmodels.analysis.uncertainty.kernel_errors import known_scatter
from jaxspec.studies.sweep.axes import DerivedNumbers
from jaxspec.studies.sweep.blocks import Blocks, blocks_of
from jaxspec.studies.sweep.evaluating import begin_points
from jaxspec.studies.sweep.points_file import OF_THE_DEVICE, points_schema

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
        scatters: of the engine's cycles for each pair, for intervals; 0 unless given.
    """

    axes: dict[str, np.ndarray]
    pairs: list[tuple[str, str]]
    bases: list[dict[str, Any]]
    max_draft_length: int
    derived: DerivedNumbers = dataclasses.field(default_factory=DerivedNumbers)
    scatters: tuple[float, ...] = ()

    @cached_property
    def has_intervals(self) -> bool:
        """Whether a device's times are known to err, or an engine's cycles on it."""
        scatters = self.scatters or (0.0,) * len(self.bases)
        found = (known_scatter(base["device"], one) for base, one in zip(self.bases, scatters, strict=True))
        return any(one is not None for one in found)

    @property
    def of_the_device(self) -> tuple[str, ...]:
        """Results that are data of the devices: not an area that a technology predicts for one of them."""
        predicted = ("area_m2",) if any(base["device"].technology is not None for base in self.bases) else ()
        return tuple(name for name in OF_THE_DEVICE if name not in predicted)

    def schema(self, scheme: str) -> pa.Schema:
        """That of the file of all points. Args: scheme: whose widths axes begin with."""
        asked: dict[str, Any] = {"intervals": self.has_intervals, "of_the_device": self.of_the_device}
        return points_schema(tuple(self.axes), scheme, **asked)

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
        """Names, axes and results of each chunk, in order.

        Local devices take turns, each with a call of the same shape, so that results depend neither on the chunk nor on the
        number of devices. The next calls are on their way while a chunk is used.
        """
        devices = jax.local_devices()
        with ThreadPoolExecutor(len(devices)) as pool:  # devices compile side by side
            begun: deque[Future] = deque()
            for i, chunk in enumerate(chunks):
                begun.append(pool.submit(self._begin, chunk, devices[i % len(devices)]))
                if len(begun) > len(devices):
                    yield begun.popleft().result()()
            while begun:
                yield begun.popleft().result()()

    def _begin(self, chunk: int, device: Any) -> Callable[[], dict[str, np.ndarray]]:
        pair, number = divmod(chunk, self.chunks_per_pair)
        places = dict(zip(self.axes, self.blocks.places(number), strict=True))
        varied = {name: values[places[name]] for name, values in self.axes.items()}
        # Knobs of widths are read by nothing but the derived numbers.
        own = varied | self.derived.at(places)
        shape, count = self.blocks.block_shape, self.blocks.points_of(number)
        asked: dict[str, Any] = {"max_draft_length": self.max_draft_length, "device": device}
        asked |= {"intervals": self.has_intervals, "scatter": self.scatters[pair] if self.scatters else 0.0}
        wait = begin_points(self.bases[pair], own, shape=shape, **asked)
        names = dict(zip(("architecture", "device"), self.pairs[pair], strict=True))

        def columns() -> dict[str, np.ndarray]:
            axes = {name: np.broadcast_to(values, shape).reshape(-1) for name, values in varied.items()}
            found = {name: values[:count] for name, values in (axes | wait()).items()}
            return {name: np.full(count, value) for name, value in names.items()} | found

        return columns
