"""Intervals of a result's main numbers, and the engine whose terms are in them."""

from __future__ import annotations

import dataclasses

from jaxspec.results.quantity import UNKNOWN, Quantity
from jaxspec.results.records import Record

__all__ = ["NO_ENDS", "CycleEnds", "Ends", "EngineUsed", "HeadlineIntervals"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ends(Record):
    """Ends of an interval."""

    low: Quantity[float] = UNKNOWN
    high: Quantity[float] = UNKNOWN


#: Of a number that nothing is known to err in.
NO_ENDS = Ends()


@dataclasses.dataclass(frozen=True, kw_only=True)
class CycleEnds(Record):
    """Intervals of the main numbers of a cycle and of the autoregressive steps that it is compared with."""

    speedup_vs_bf16_ar: Ends = NO_ENDS
    speedup_vs_stored_ar: Ends = NO_ENDS
    tokens_per_s: Ends = NO_ENDS
    cycle_s: Ends = NO_ENDS
    ar_bf16_s: Ends = NO_ENDS
    ar_stored_s: Ends = NO_ENDS


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadlineIntervals(CycleEnds):
    """Intervals of a draft's main numbers.

    Attributes:
        coverage: probability that each is to cover the true number with.
        covers: errors that they hold: "calibration" of the device's kernels, sampling of "acceptance", "engine".
        statement: the same in a sentence.
    """

    coverage: float | None = None
    covers: list[str] = dataclasses.field(default_factory=list)
    statement: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineUsed(Record):
    """Serving engine of the predicted times.

    Attributes:
        terms: seconds that it adds, by name; none where they are not known.
        sources: where each comes from.
    """

    name: str | None = None
    terms: dict[str, Quantity[float]] = dataclasses.field(default_factory=dict)
    sources: dict[str, str] = dataclasses.field(default_factory=dict)
