"""Times of compiled programs on a machine that others may use: warm, interleaved, repeated."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax

__all__ = ["Timed", "Timing", "measure", "timing_of"]

#: Seconds that one call of a program is to take, so that its start and the clock do not count.
CALL_S = 0.02

#: What a turn takes is never all for the loop.
_LEAST_SHARE = 0.1

#: The most turns in a call.
_MOST_TURNS = 1 << 16

Clock = Callable[[], float]


@dataclasses.dataclass(frozen=True)
class Timed:
    """A program to time.

    Attributes:
        run: from a number of turns to arrays; compiled once for all numbers.
        per_turn: things to time in a turn, as layers of a loop.
    """

    run: Callable[[int], Any]
    per_turn: int = 1


@dataclasses.dataclass(frozen=True)
class Timing:
    """Seconds of one thing.

    Attributes:
        median, least: over the repeats.
        spread: between the quartiles, over the median.
        first_s: of the first call, which compiles.
    """

    median: float
    least: float
    spread: float
    first_s: float


def measure(
    programs: Sequence[Timed],
    *,
    repeats: int,
    call_s: float = CALL_S,
    clock: Clock = time.perf_counter,
    empty: Timed | None = None,
) -> list[Timing]:
    """Time programs side by side: each repeat runs all of them, so that a slow minute of the machine meets all alike.

    Args:
        repeats: at least 1.
        call_s: seconds of a call; programs take turns until they last so long.
        empty: a loop with nothing in its turns, timed beside programs with several things in a turn, which share it: they are
            not charged for it. A step has one such turn, however many layers; on a GPU, which tells the host whether to go
            on, it takes 22 µs, more than many a product.
    """
    beside = [empty] if empty is not None and any(program.per_turn > 1 for program in programs) else []
    timed = [*programs, *beside]
    firsts, turns = [], []
    for program in timed:
        firsts.append(_seconds(program, 1, clock))
        turns.append(_turns(program, call_s, clock))
    found: list[list[float]] = [[] for _ in timed]
    for _ in range(repeats):
        for program, count, seconds in zip(timed, turns, found, strict=True):
            seconds.append(_seconds(program, count, clock) / count)
    turn_s = statistics.median(found[-1]) if beside else 0.0
    return [
        timing_of([_each(one, program.per_turn, turn_s) for one in seconds], first)
        for program, seconds, first in zip(programs, found, firsts, strict=False)
    ]


def _each(seconds: float, count: int, turn_s: float) -> float:
    """Of so many things in a turn that took so long. An empty turn may take longer than one with work to hide it behind."""
    return max(seconds - turn_s, _LEAST_SHARE * seconds) / count if count > 1 else seconds


def _turns(program: Timed, call_s: float, clock: Clock) -> int:
    """As many turns as last long enough, found by doubling."""
    count = 1
    while (seconds := _seconds(program, count, clock)) < call_s / 2 and count < _MOST_TURNS:
        count = min(_MOST_TURNS, max(2 * count, int(count * min(16.0, call_s / max(seconds, 1e-9)))))
    return count


def _seconds(program: Timed, turns: int, clock: Clock) -> float:
    began = clock()
    jax.block_until_ready(program.run(turns))
    return clock() - began


def timing_of(seconds: list[float], first_s: float) -> Timing:
    """Of the seconds of all repeats, and of the first call, which compiles."""
    middle = statistics.median(seconds)
    quartiles = statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else [middle] * 3
    return Timing(middle, min(seconds), (quartiles[2] - quartiles[0]) / middle, first_s)
