"""Seconds by kind of stage stand in one order, whatever the order of a file's keys."""

from jaxspec.report.page import timing
from jaxspec.results import measured
from jaxspec.results.network_results import MeasuredResult


def test_the_longest_come_first():
    seconds = {"decode/chain": 2.0, "draft_ranks": 4.5, "decode/tree": 1.0, "ascent": 9.0, "pricing": None}
    found = MeasuredResult(timing_s={name: measured(each) for name, each in seconds.items()})
    assert timing(found) == [("ascent", "9.0 s"), ("draft ranks", "4.5 s"), ("decode", "3.0 s")]
