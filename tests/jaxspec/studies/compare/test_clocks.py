"""Several stopwatches as one: every way, the noisiest clock's noise."""

import dataclasses
import math

from jaxspec.results import measured
from jaxspec.results.quantity import UNKNOWN
from jaxspec.results.stopwatch_results import ClockedWay, Stopwatch
from jaxspec.studies.compare.run import joined_clocks


def clock(name, noise, *, believable=True, load=0.5):
    way = ClockedWay(tokens_per_cycle=measured(2.0))
    load = UNKNOWN if load is None else measured(load)
    numbers = {"noise": measured(noise), "believable": measured(believable), "load": load}
    return Stopwatch(machine="this one", statement="own times", ways={name: way}, **numbers)


def test_nothing_timed_is_nothing():
    assert joined_clocks([]) is None


def test_all_ways_and_the_noisiest():
    found = joined_clocks([clock("ngram", 0.01), clock("cassandra1", 0.3, believable=False, load=1.5)])
    assert list(found.ways) == ["ngram", "cassandra1"]
    assert (found.noise.known, found.believable.known, found.load.known) == (0.3, False, 1.5)
    assert found.statement.startswith("own times; each draft is timed")


def test_a_reason_of_any_clock_is_told():
    lost = dataclasses.replace(clock("q4", 0.01), unknown="lost")
    assert joined_clocks([clock("ngram", 0.01), lost]).unknown == "lost"


def test_what_no_clock_knows_stays_unknown():
    found = joined_clocks([clock("ngram", 0.01, load=None), clock("q4", 0.02, load=None)])
    assert found.load.number is None
    assert found.believable.known


def test_a_clock_of_unknown_noise_is_the_noisiest():
    found = joined_clocks([clock("ngram", 0.01), clock("q4", math.inf, believable=False)])
    assert found.noise.number is None
    assert not found.believable.known
