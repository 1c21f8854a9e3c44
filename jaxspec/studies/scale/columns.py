"""Numbers of plans and exchanges that are shown, on the page and in the terminal."""

from __future__ import annotations

from hwmodels.numerics.units import GB
from jaxspec.report.columns import Column
from jaxspec.report.formatting import fixed, quantity, three_digits, times
from jaxspec.studies.scale.result import Exchange, PlanRow

__all__ = ["EXCHANGE_COLUMNS", "PLAN_COLUMNS", "interval", "seconds"]


def seconds(value: float) -> str:
    """A time in the unit that fits its size, with three digits."""
    number, unit = quantity("_s", value).split(" ")
    return f"{three_digits(float(number))} {unit}"


def _accuracy(row: PlanRow) -> str:
    # Its interval stands beside it, in place of the standard error.
    return fixed(row.accuracy.number, 3)


def interval(row: PlanRow) -> str:
    """The interval of the accuracy."""
    return f"{fixed(row.low.number, 2)} to {fixed(row.high.number, 2)}"


def _front(row: PlanRow) -> str:
    marks = [
        word
        for word, mark in (("time", row.fastest_of_its_accuracy), ("energy", row.cheapest_of_its_accuracy))
        if mark.value
    ]
    if not row.attainable:
        return "bound"
    return (", ".join(marks) or "no") if row.fits.value else "does not fit"


#: Of a plan.
PLAN_COLUMNS = (
    Column[PlanRow](
        "accuracy",
        "accu-\nracy",
        "share of right answers",
        lambda row: row.accuracy,
        lambda x: fixed(x, 3),
        words=_accuracy,
    ),
    Column[PlanRow]("interval", "95 %", "of the accuracy, over problems", lambda row: row.low, str, words=interval),
    Column[PlanRow](
        "passes", "passes", "until the longest sample ends", lambda row: row.passes, lambda value: fixed(value, 0)
    ),
    Column[PlanRow](
        "step",
        "step",
        "of all samples together",
        lambda row: row.step_s,
        seconds,
        interval=lambda row: row.intervals and row.intervals.step_s,
    ),
    Column[PlanRow](
        "judge",
        "judge",
        "time of the network that judges",
        lambda row: row.judge_s,
        seconds,
        interval=lambda row: row.intervals and row.intervals.judge_s,
        optional=True,
    ),
    Column[PlanRow](
        "time",
        "time",
        "prompt, all passes and judge",
        lambda row: row.total_s,
        seconds,
        interval=lambda row: row.intervals and row.intervals.total_s,
    ),
    Column[PlanRow](
        "energy, J", "energy, J", "of all of it", lambda row: row.energy_j, lambda value: f"{value:.3g}", optional=True
    ),
    Column[PlanRow](
        "held, GB", "held, GB", "weights and KV", lambda row: row.held_bytes, lambda value: fixed(value / GB, 2)
    ),
    Column[PlanRow](
        "not beaten",
        "not\nbeaten",
        "no other plan is as accurate in less time, or with less energy",
        lambda row: row.fastest_of_its_accuracy,
        str,
        words=_front,
    ),
)

#: Of an exchange.
EXCHANGE_COLUMNS = (
    Column[Exchange](
        "drafted tokens",
        "drafted",
        "best up to the rows, less one",
        lambda row: row.draft_length,
        lambda x: fixed(x, 0),
    ),
    Column[Exchange](
        "speculation",
        "specu-\nlation",
        "time of an answer",
        lambda row: row.speculation_s,
        seconds,
        interval=lambda row: row.intervals and row.intervals.speculation_s,
    ),
    Column[Exchange](
        "speedup",
        "speedup",
        "over one sample without it",
        lambda row: row.speedup,
        times,
        interval=lambda row: row.intervals and row.intervals.speedup,
    ),
    Column[Exchange](
        "accuracy of one",
        "accuracy\nof one",
        "speculation keeps it",
        lambda row: row.accuracy_one,
        lambda x: fixed(x, 3),
    ),
    Column[Exchange]("sampling", "sampling", "time of an answer", lambda row: row.sampling_s, seconds),
    Column[Exchange]("slowdown", "slow-\ndown", "over one sample", lambda row: row.slowdown, times),
    Column[Exchange]("accuracy", "accuracy", "of the samples", lambda row: row.accuracy, lambda x: fixed(x, 3)),
    Column[Exchange](
        "sooner right",
        "sooner\nright",
        "use of the rows with the shorter time per right answer",
        lambda row: row.speculation_right_s,
        str,
        words=lambda row: row.better.value or "neither",
    ),
)
