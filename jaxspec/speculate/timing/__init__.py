"""Decoding in wall-clock time: with and without speculation, in turns, and the parts of a cycle."""

from jaxspec.speculate.timing.stopwatch import (
    AUTOREGRESSIVE,
    BELIEVABLE,
    Clocked,
    CountedWay,
    Spread,
    TimedWay,
    Way,
    chain_way,
    interleave,
    noise_of,
    spread_of,
    time_ways,
    timed_prompts,
    tree_way,
)

__all__ = [
    "AUTOREGRESSIVE",
    "BELIEVABLE",
    "Clocked",
    "CountedWay",
    "Spread",
    "TimedWay",
    "Way",
    "chain_way",
    "interleave",
    "noise_of",
    "spread_of",
    "time_ways",
    "timed_prompts",
    "tree_way",
]
