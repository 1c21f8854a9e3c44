"""Stopwatches of several drafts, each beside its own target alone, as one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from jaxspec.results import measured
from jaxspec.results.stopwatch_results import Stopwatch

__all__ = ["joined_clocks"]


def joined_clocks(clocks: Sequence[Stopwatch]) -> Stopwatch | None:
    """All ways of them; None without any.

    Targets differ in what they store, not in how they are decoded here, so that decoding without speculation is that of the
    first one; each speedup is over the draft's own. Noise and load are those of the noisiest: where the noise of one is not
    known, that is the noisiest.
    """
    if not clocks:
        return None
    known = lambda name: [number for clock in clocks if (number := getattr(clock, name).number) is not None]
    noise = max(known("noise"), default=None) if len(known("noise")) == len(clocks) else None
    turns = "each draft is timed in turns with its own target alone, of which the first one's stands here"
    return dataclasses.replace(
        clocks[0],
        statement=f"{clocks[0].statement}; {turns}",
        unknown=next((clock.unknown for clock in clocks if clock.unknown), None),
        noise=measured(noise),
        believable=measured(all(bool(clock.believable.value) for clock in clocks)),
        load=measured(max(known("load"), default=None)),
        ways={name: way for clock in clocks for name, way in clock.ways.items()},
    )
