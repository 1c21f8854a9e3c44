"""Layers that one compiled program runs: consecutive equal ones, and what a network repeats of these."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

from jaxspec.models.blocks import Attention, FeedForward

__all__ = ["LayerLoop", "LayerRun", "loops_of", "runs_of"]


class LayerRun(NamedTuple):
    """Consecutive layers of the same kinds of block: `start` to `stop`, the latter not included."""

    attention: Attention
    feed_forward: FeedForward
    start: int
    stop: int


class LayerLoop(NamedTuple):
    """Consecutive runs, repeated one after the other.

    Attributes:
        runs: the first time. times: how often they come.
    """

    runs: tuple[LayerRun, ...]
    times: int

    @property
    def start(self) -> int:
        """First layer."""
        return self.runs[0].start

    @property
    def layers(self) -> int:
        """Of one turn."""
        return self.runs[-1].stop - self.start


def runs_of(blocks: Callable[[int], tuple[Attention, FeedForward]], layers: int) -> tuple[LayerRun, ...]:
    """The layers in order, consecutive equal ones together: the body of each run is compiled once.

    Args:
        blocks: kinds of block of a layer.
    """
    found = []
    for kinds, numbers in itertools.groupby(range(layers), key=blocks):
        members = list(numbers)
        found.append(LayerRun(*kinds, members[0], members[-1] + 1))
    return tuple(found)


def loops_of(runs: tuple[LayerRun, ...]) -> tuple[LayerLoop, ...]:
    """The runs in order, those that are repeated at once as one loop: from the first on, what saves most bodies."""
    forms = [(run.attention, run.feed_forward, run.stop - run.start) for run in runs]
    found, first = [], 0
    while first < len(runs):
        best, saved = LayerLoop(runs[first : first + 1], 1), 0
        for size in range(1, (len(runs) - first) // 2 + 1):
            turn, times = forms[first : first + size], 1
            while forms[first + times * size : first + (times + 1) * size] == turn:
                times += 1
            if size * (times - 1) > saved:
                best, saved = LayerLoop(runs[first : first + size], times), size * (times - 1)
        found.append(best)
        first += len(best.runs) * best.times
    return tuple(found)
