"""Decoding against the clock, shown: the order of ways, and what is not known."""

import math

from jaxspec.files import as_stored
from jaxspec.report.stopwatch import stopwatch_figure, stopwatch_in_words, stopwatch_tables
from jaxspec.results import given, measured
from jaxspec.results.network_results import MeasuredResult, RunningModel
from jaxspec.results.stopwatch_results import ClockedWay, Repeated, Stopwatch

LOST = "n/a: times that are lost in their noise"


def repeated(median, low, high):
    return Repeated(median=measured(median), low=measured(low), high=measured(high))


def way(speedup=(1.5, 1.0, 2.0), cycle_s=(2e-3, 1e-3, 3e-3)):
    known = repeated(1e-3, 1e-3, 2e-3)
    return ClockedWay(
        tokens_per_cycle=measured(1.5),
        tokens_per_s=known,
        speedup=repeated(*speedup),
        cycle_s=repeated(*cycle_s),
        draft_step_s=known,
        verify_s=known,
    )


def result(ways, noise, repeats=7):
    clock = Stopwatch(
        machine="this one",
        repeats=given(repeats),
        noise=measured(noise),
        believable=measured(noise <= 0.03),
        autoregressive=way(),
        ways=ways,
    )
    # As a run writes and reads it.
    return MeasuredResult.from_plain(
        as_stored(MeasuredResult(model=RunningModel(name="tiny"), stopwatch=clock).plain())
    )


def test_times_that_are_lost_are_not_told_as_numbers():
    nothing = (math.nan, math.nan, math.nan)
    shown = result({"ngram": way(nothing, (math.nan, math.nan, 1e-3))}, math.inf)
    assert shown.stopwatch.ways["ngram"].cycle_s.median.status == "measured"
    (table,) = stopwatch_tables([shown])
    assert table.rows[1].cells[3:5] == ("n/a", "n/a")
    words = stopwatch_in_words(shown.stopwatch)
    assert "not sure at all: TOO NOISY to be believed" in words
    assert LOST in words
    assert stopwatch_figure(shown) is None
    few = stopwatch_in_words(result({"ngram": way(nothing)}, math.inf, repeats=2).stopwatch)
    assert "too few repeats to tell the noise" in few
    assert LOST in few
