"""A clock for programs that are compared: they run close together, round after round, in an order that changes.

What else the machine does then slows all of them down alike, so that ratios within a round stay right where times do not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import numpy as np
from jaxtyping import Float

from jaxspec.checks import check_count

__all__ = ["Calls", "Clocked", "interleave"]

Name = TypeVar("Name", bound=Hashable)

#: What is timed one after the other under one name; each returns arrays, or trees of them.
Calls = Sequence[Callable[[], Any]]


class Clocked(NamedTuple, Generic[Name]):
    """Seconds and results of calls.

    Attributes:
        first_s: of each call's first time, which compiles.
        seconds: of the timed ones; entry r of all is of the same round.
        results: of each call.
    """

    first_s: dict[Name, list[float]]
    seconds: dict[Name, Float[np.ndarray, "repeat call"]]
    results: dict[Name, list[Any]]


def _nothing() -> None:
    """No progress is shown."""


def interleave(
    blocks: Sequence[Mapping[Name, Calls]],
    repeats: int,
    *,
    seed: int = 0,
    warm: Callable[[Mapping[Name, list[Any]]], None] = lambda results: None,
    advance: Callable[[], None] = _nothing,
    clock: Callable[[], float] = time.perf_counter,
) -> Clocked[Name]:
    """Warm all calls up, then time them in rounds; results are awaited.

    Args:
        blocks: what is compared, by names that no two share; a round goes through one block after the other, and through each
            in an order of its own.
        seed: of that order.
        warm: called with the results before anything is timed.
        advance: called for each name when it is warm, and after each block of each round.
    Raises:
        ValueError: repeats below 1.
    """
    check_count("repeats", repeats)
    rng = np.random.default_rng(seed)

    def timed(call: Callable[[], Any]) -> tuple[float, Any]:
        started = clock()
        result = jax.block_until_ready(call())
        return clock() - started, result

    clocked: Clocked[Name] = Clocked({}, {}, {})
    for block in blocks:
        for name, calls in block.items():
            first = [timed(call) for call in calls]
            clocked.first_s[name], clocked.results[name] = [pair[0] for pair in first], [pair[1] for pair in first]
            clocked.seconds[name] = np.zeros((repeats, len(calls)))
            advance()
    warm(clocked.results)
    for repeat in range(repeats):
        for block in blocks:
            names = list(block)
            for place in rng.permutation(len(names)):
                name = names[place]
                clocked.seconds[name][repeat] = [timed(call)[0] for call in block[name]]
            advance()
    return clocked
