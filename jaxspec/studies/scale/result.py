"""Result of `jaxspec scale` for one device."""

from __future__ import annotations

import dataclasses

from jaxspec.results import UNKNOWN, Quantity, Record, quantity_field
from jaxspec.results.network_results import NO_ENDS, Ends, MeasuredResult

__all__ = [
    "Chosen",
    "Curve",
    "CurvePoint",
    "Exchange",
    "ExchangeEnds",
    "NetworkCurves",
    "PlanEnds",
    "PlanRow",
    "ScaleResult",
    "Speculation",
    "TaskSettings",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSettings(Record):
    """What was answered, and how answers were looked at."""

    name: str | None = None
    check: str | None = None
    score: str | None = None
    judge: str | None = None
    problems: Quantity[int] = UNKNOWN
    samples: Quantity[int] = UNKNOWN
    output_tokens: Quantity[int] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurvePoint(Record):
    """What a method reaches with a budget.

    Attributes:
        low, high: 95 % interval of the accuracy.
        gain: accuracy beyond that of one sample, on the same problems; its interval likewise.
        tokens: generated for a problem, those of samples that are not chosen included.
        passes: of the network one after the other; the longest of N samples takes so many.
    """

    samples: int = 0
    accuracy: Quantity[float] = quantity_field(error="accuracy_standard_error")
    low: Quantity[float] = UNKNOWN
    high: Quantity[float] = UNKNOWN
    gain: Quantity[float] = quantity_field(error="gain_standard_error")
    gain_low: Quantity[float] = UNKNOWN
    gain_high: Quantity[float] = UNKNOWN
    tokens: Quantity[float] = quantity_field(error="tokens_standard_error")
    passes: Quantity[float] = quantity_field(error="passes_standard_error")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve(Record):
    """A method over budgets.

    Attributes:
        attainable: whether a user could choose so; with a checker that must know the answer, none could.
    """

    method: str = ""
    attainable: bool = True
    points: list[CurvePoint] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkCurves(Record):
    """What one network reaches.

    Attributes:
        ended: share of samples that have an end within their tokens.
    """

    name: str = ""
    architecture: str | None = None
    parameters: Quantity[int] = UNKNOWN
    ended: Quantity[float] = UNKNOWN
    curves: list[Curve] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanEnds(Record):
    """Intervals of a plan's times, with the errors of the device's kernels."""

    step_s: Ends = NO_ENDS
    prefill_s: Ends = NO_ENDS
    judge_s: Ends = NO_ENDS
    total_s: Ends = NO_ENDS


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanRow(Record):
    """A way to answer, priced.

    Attributes:
        batch: problems worked on together; times and energy are of all of them.
        passes: of the network until the longest sample of the batch ends.
        judge_s: of the network that judges; 0 without one.
        intervals: of its times; None on a device that is not calibrated.
        fastest_of_its_accuracy, cheapest_of_its_accuracy: whether no other plan of the batch that fits is as good in less
            time, or with less energy.
    """

    model: str = ""
    method: str = ""
    samples: int = 0
    batch: int = 0
    attainable: bool = True
    accuracy: Quantity[float] = quantity_field(error="accuracy_standard_error")
    low: Quantity[float] = UNKNOWN
    high: Quantity[float] = UNKNOWN
    passes: Quantity[float] = UNKNOWN
    step_s: Quantity[float] = UNKNOWN
    prefill_s: Quantity[float] = UNKNOWN
    decode_s: Quantity[float] = UNKNOWN
    judge_s: Quantity[float] = UNKNOWN
    total_s: Quantity[float] = UNKNOWN
    intervals: PlanEnds | None = None
    energy_j: Quantity[float] = UNKNOWN
    held_bytes: Quantity[float] = UNKNOWN
    fits: Quantity[bool] = UNKNOWN
    fastest_of_its_accuracy: Quantity[bool] = UNKNOWN
    cheapest_of_its_accuracy: Quantity[bool] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chosen(Record):
    """The cheapest plan for an accuracy; None: no plan reaches it."""

    accuracy: Quantity[float] = UNKNOWN
    by_time: PlanRow | None = None
    by_energy: PlanRow | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExchangeEnds(Record):
    """Intervals of an answer with drafted tokens; accepted tokens are taken as known."""

    speculation_s: Ends = NO_ENDS
    speedup: Ends = NO_ENDS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exchange(Record):
    """The same matrix rows of each problem, used for drafted tokens or for samples.

    Attributes:
        rows: samples, or tokens of one verification at most.
        plain_s: one sample without speculation.
        accuracy_one: of one sample, which speculation does not change.
        intervals: of the time with drafted tokens; None where nothing is known to err.
        method: the attainable one with the highest accuracy that fits; None: none does.
        speculation_right_s, sampling_right_s: time for a right answer, time over accuracy.
        better: "speculation" or "sampling", by that time; None where nothing was right.
    """

    model: str = ""
    batch: int = 0
    rows: int = 0
    plain_s: Quantity[float] = UNKNOWN
    accuracy_one: Quantity[float] = UNKNOWN
    draft_length: Quantity[int] = UNKNOWN
    tokens_per_cycle: Quantity[float] = UNKNOWN
    speculation_s: Quantity[float] = UNKNOWN
    speedup: Quantity[float] = UNKNOWN
    intervals: ExchangeEnds | None = None
    speculation_right_s: Quantity[float] = UNKNOWN
    method: str | None = None
    sampling_s: Quantity[float] = UNKNOWN
    slowdown: Quantity[float] = UNKNOWN
    accuracy: Quantity[float] = UNKNOWN
    gain: Quantity[float] = UNKNOWN
    sampling_right_s: Quantity[float] = UNKNOWN
    better: Quantity[str] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class Speculation(Record):
    """What drafts, and what is accepted of it: model -> conditional by position."""

    draft: str | None = None
    conditional: dict[str, Quantity[list]] = dataclasses.field(default_factory=dict)
    rows: list[Exchange] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScaleResult(MeasuredResult):
    """What test-time scaling gains and costs on one device; `pays` says whether some plan is surely better than one sample.

    Attributes:
        most_accurate: plan at the batch asked for; None where none fits.
        target: None where no accuracy was asked for.
        interval_statement: what intervals of times hold; None: there are none.
    """

    task: TaskSettings = TaskSettings()
    networks: list[NetworkCurves] = dataclasses.field(default_factory=list)
    plans: list[PlanRow] = dataclasses.field(default_factory=list)
    most_accurate: PlanRow | None = None
    target: Chosen | None = None
    speculation: Speculation = Speculation()
    interval_statement: str | None = None
