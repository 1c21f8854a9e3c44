"""Numbers of an advised batch that are shown, in the terminal and on the page."""

from __future__ import annotations

from collections.abc import Callable

from jaxspec.report.columns import Column, interval_in_words
from jaxspec.report.formatting import NOT_KNOWN, fixed, times
from jaxspec.results import UNKNOWN
from jaxspec.studies.advise.result import AdvisedBatch

__all__ = ["BATCH_COLUMNS", "limits_in_words"]


def _digits(count: int) -> Callable[[float], str]:
    return lambda value: fixed(value, count)


def limits_in_words(row: AdvisedBatch, most: int = 2) -> str:
    """What the time goes to, the largest shares first."""
    found = row.time_by_cause.value or {}
    total, largest = sum(found.values()), sorted(found, key=lambda name: -found[name])
    return ", ".join(f"{name} {100 * found[name] / total:.0f} %" for name in largest[:most])


def _chance(row: AdvisedBatch) -> str:
    chance = row.probability_pays.number
    if chance is None:
        return NOT_KNOWN
    return "> 99 %" if chance > 0.995 else "< 1 %" if chance < 0.005 else f"{100 * chance:.0f} %"


def _tree(row: AdvisedBatch) -> str:
    if row.tree is None:
        return NOT_KNOWN
    speedup, ends = row.tree.speedup_vs_stored_ar.number, interval_in_words(row.tree.interval, times)
    return f"{times(speedup)}{ends} at {row.tree.nodes.value} tokens"


def _rate(row: AdvisedBatch) -> str:
    text = fixed(row.tokens_per_s.number, 0)
    low, high = row.tokens_per_s_interval.low.number, row.tokens_per_s_interval.high.number
    text += "" if low is None or high is None else f" [{low:.0f}, {high:.0f}]"
    return text + ("" if row.fits.value else " (does not fit)")


#: All of them, in order.
BATCH_COLUMNS = (
    Column[AdvisedBatch](
        "draft length", "draft\nlength", "0: do not speculate", lambda row: row.draft_length, _digits(0)
    ),
    Column[AdvisedBatch](
        "tokens per cycle", "tokens\nper cycle", "expected", lambda row: row.tokens_per_cycle, _digits(2)
    ),
    Column[AdvisedBatch](
        "speedup",
        "speedup",
        "over decoding what is stored without a draft",
        lambda row: row.speedup_vs_stored_ar,
        times,
        interval=lambda row: row.interval,
    ),
    Column[AdvisedBatch](
        "best draft",
        "best\ndraft",
        "its speedup, whether it pays or not",
        lambda row: row.best_draft_speedup,
        times,
        words=lambda row: f"{times(row.best_draft_speedup.number)} at {row.best_draft_length.value}",
    ),
    Column[AdvisedBatch](
        "best tree",
        "best\ntree",
        "its speedup, whether it pays or not",
        lambda row: UNKNOWN if row.tree is None else row.tree.speedup_vs_stored_ar,
        times,
        words=_tree,
        optional=True,
    ),
    Column[AdvisedBatch](
        "it pays",
        "it pays",
        "probability, given the errors that are known",
        lambda row: row.probability_pays,
        str,
        words=_chance,
    ),
    Column[AdvisedBatch](
        "tokens/s", "tokens/s", "of all sequences", lambda row: row.tokens_per_s, _digits(0), words=_rate
    ),
    Column[AdvisedBatch](
        "limited by",
        "limited by",
        "shares of a cycle's time",
        lambda row: row.cycle_s,
        str,
        words=limits_in_words,
    ),
)
