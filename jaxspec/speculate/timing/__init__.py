"""Decoding in wall-clock time: with and without speculation, in turns, and the parts of a cycle."""

from jaxspec.speculate.timing.clock import Clocked, interleave
from jaxspec.speculate.timing.spread import BELIEVABLE, Spread, noise_of, spread_of
from jaxspec.speculate.timing.stopwatch import (
    AUTOREGRESSIVE,
    CountedWay,
    TimedWay,
    Way,
    chain_way,
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
