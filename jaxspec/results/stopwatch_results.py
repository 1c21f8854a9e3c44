"""Decoding against the clock: what this machine measured, beside what was predicted for it."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxspec.results.intervals import NO_ENDS, Ends
from jaxspec.results.quantity import UNKNOWN, Quantity
from jaxspec.results.records import Record

__all__ = ["LOST_IN_NOISE", "ClockIntervals", "ClockedWay", "PredictedClock", "Repeated", "Stopwatch"]

#: Why a number of a way is not known.
LOST_IN_NOISE = "times that are lost in their noise, ratios over such times, or times of a single cycle"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Repeated(Record):
    """Median of a number over repeats, and the interval in which 90 % of them lie."""

    median: Quantity[float] = UNKNOWN
    low: Quantity[float] = UNKNOWN
    high: Quantity[float] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClockIntervals(Record):
    """Intervals of predicted times and speeds.

    Attributes:
        coverage: probability that each is to cover the measured number with.
        statement: which errors they hold, and which they leave out.
    """

    coverage: float | None = None
    statement: str | None = None
    tokens_per_s: Ends = NO_ENDS
    speedup: Ends = NO_ENDS
    cycle_s: Ends = NO_ENDS
    draft_step_s: Ends = NO_ENDS
    verify_s: Ends = NO_ENDS


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictedClock(Record):
    """Times and speeds of one way to decode by the model of this machine, with the tokens that were counted.

    Attributes:
        intervals: None where nobody measured how far the device's times lie off.
    """

    tokens_per_s: Quantity[float] = UNKNOWN
    speedup: Quantity[float] = UNKNOWN
    cycle_s: Quantity[float] = UNKNOWN
    draft_step_s: Quantity[float] = UNKNOWN
    verify_s: Quantity[float] = UNKNOWN
    intervals: ClockIntervals | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClockedWay(Record):
    """One way to decode.

    Attributes:
        drafted_tokens: verified beside the root in each cycle; 0: no speculation.
        tokens_per_cycle: of each sequence.
        tokens_per_turn: of a batch, in each turn of the loop, which waits for its slowest sequence.
        tokens_per_s: of a batch.
        speedup: over decoding without speculation, at width 1.
        cycle_s, draft_step_s, verify_s: of a batch; without speculation, a cycle is a step.
        compile_s: not part of any of them.
        equal_tokens: share that equals decoding without speculation.
        predicted: None where the priced device is not this machine.
    """

    one_status: ClassVar[bool] = False

    drafted_tokens: Quantity[int] = UNKNOWN
    tokens_per_cycle: Quantity[float] = UNKNOWN
    tokens_per_turn: Quantity[float] = UNKNOWN
    tokens_per_s: Repeated = Repeated()
    speedup: Repeated = Repeated()
    cycle_s: Repeated = Repeated()
    draft_step_s: Repeated = Repeated()
    verify_s: Repeated = Repeated()
    compile_s: Quantity[float] = UNKNOWN
    equal_tokens: Quantity[float] = UNKNOWN
    predicted: PredictedClock | None = None

    @property
    def lost(self) -> bool:
        """Whether one of its times or rates was timed and is not known."""
        timed = (self.tokens_per_s, self.speedup, self.cycle_s, self.draft_step_s, self.verify_s)
        return any(each.median.status and each.median.number is None for each in timed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stopwatch(Record):
    """Ways to decode the same prompts, timed in turns on the machine that ran.

    Attributes:
        machine: that ran.
        statement: what the times may be compared with.
        unknown: why medians are not known; None where all are.
        noise: largest relative error of a median speedup; believable: whether it is small enough.
        load: tasks that wanted to run in the last minute of timing, over the cores; unknown where the system does not say.
        autoregressive: without speculation, one token per step at width 1.
    """

    has_status_table: ClassVar[bool] = True

    machine: str | None = None
    statement: str | None = None
    unknown: str | None = None
    repeats: Quantity[int] = UNKNOWN
    prompts: Quantity[int] = UNKNOWN
    batch: Quantity[int] = UNKNOWN
    output_tokens: Quantity[int] = UNKNOWN
    noise: Quantity[float] = UNKNOWN
    believable: Quantity[bool] = UNKNOWN
    load: Quantity[float] = UNKNOWN
    autoregressive: ClockedWay = ClockedWay()
    ways: dict[str, ClockedWay] = dataclasses.field(default_factory=dict)
