"""The clock of benchmarks and contests, beside one that is turned by hand."""

import itertools

from experiments.benchmarks.harness import medians_s


class Clock:
    """Calls take the seconds that are given, each in its turn."""

    def __init__(self, **seconds):
        self.now, self.calls = 0.0, []
        self._seconds = {name: itertools.cycle(each) for name, each in seconds.items()}

    def __call__(self):
        return self.now

    def call(self, name):
        def run():
            self.calls.append(name)
            self.now += next(self._seconds[name])

        return run


def test_calls_take_turns_and_the_first_of_each_does_not_count():
    clock = Clock(a=[100.0, 1.0, 9.0, 2.0], b=[50.0, 4.0, 3.0, 8.0])
    assert medians_s([clock.call("a"), clock.call("b")], 3, clock=clock) == [2.0, 4.0]
    assert clock.calls == ["a", "b"] * 4
