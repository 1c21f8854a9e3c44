"""Decoding against the clock, shown: the order of ways, and what is not known."""

import math

import pytest

from jaxspec.files import as_stored
from jaxspec.report.stopwatch import stopwatch_figure, stopwatch_grids, stopwatch_in_words, stopwatch_tables
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


@pytest.mark.parametrize("names", [["tuned", "q4", "default", "ngram"], ["ngram", "default", "q4", "tuned"]])
def test_ways_stand_in_one_order_however_they_come(names):
    shown = result({name: way() for name in names}, 0.01)
    (table,) = stopwatch_tables([shown])
    order = ["default", "tuned", "ngram", "q4"]
    assert [row.cells[0] for row in table.rows] == ["no speculation", *order]
    assert stopwatch_grids(shown)[0].names == ["no speculation", *order]
    assert [label.get_text() for label in stopwatch_figure(shown).axes[0].get_xticklabels()] == order


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


def test_an_end_that_is_not_known_is_drawn_no_bar():
    shown = result({"ngram": way((1.5, 1.0, math.nan))}, 0.5)
    words = stopwatch_in_words(shown.stopwatch)
    assert "sure to 50.0 %: TOO NOISY" in words
    assert LOST not in words
    (table,) = stopwatch_tables([shown])
    assert "1.50 (1.00 to n/a)" in table.rows[1].cells
    assert stopwatch_figure(shown) is not None
