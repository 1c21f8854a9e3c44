"""Lines without a terminal: one per stage, one per minute, by a clock of the test's own."""

import io
import threading

from rich.console import Console

from jaxspec.runs.progress import Reporter


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class Told(io.StringIO):
    """Text that says when it has a line with certain words."""

    def __init__(self, words):
        super().__init__()
        self.words, self.heard = words, threading.Event()

    def write(self, text):
        if self.words in text:
            self.heard.set()
        return super().write(text)


def reporter(file, clock, **options):
    return Reporter(Console(file=file, width=100), clock=clock, **options)


def test_a_line_per_stage_and_per_minute():
    file, clock = io.StringIO(), Clock()
    report = reporter(file, clock)
    with report.bar("design points", 6) as bar:
        for step in range(6):
            clock.now += 25
            bar.advance(f"{100 * (step + 1)}")
    assert file.getvalue().splitlines() == [
        "design points ...",
        "design points: 3 of 6, 75 s so far, about 75 s left; 300",
        "design points: 6 of 6, 150 s so far; 600",
        "design points: 600, done in 150 s",
    ]


def test_a_stage_without_steps_has_a_line_per_minute_too():
    file, clock = io.StringIO(), Clock()
    report = reporter(file, clock)
    report.line("loading tiny and its text ...")
    for _ in range(5):
        clock.now += 30
        report.beat()
    with report.bar("tuning", 4):  # the first step compiles for minutes
        clock.now += 61
        report.beat()
    clock.now += 61  # what comes after a bar says so, until it has a name of its own
    report.beat()
    report.doing("measuring the draft")
    clock.now += 61
    report.beat()
    lines = file.getvalue().splitlines()
    last = ["after tuning: 61 s so far", "measuring the draft: 61 s so far"]
    assert lines[1:3] == [f"loading tiny and its text: {s} s so far" for s in (60, 120)]
    assert lines[3:] == ["tuning ...", "tuning: 0 of 4, 61 s so far", "tuning: done in 61 s", *last]


def test_the_lines_come_while_native_code_runs():
    file = Told("working")
    report = Reporter(Console(file=file), period_s=0.01)
    with report.alive():
        with report.alive():  # a bar within a run
            pass
        assert file.heard.wait(60)  # nobody calls the reporter meanwhile
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]


def test_a_terminal_has_bars_and_no_such_lines():
    file, clock = io.StringIO(), Clock()
    report = Reporter(Console(file=file, force_terminal=True, width=100), clock=clock)
    with report.alive(), report.bar("tuning", 2) as bar:
        clock.now += 1000
        report.beat()
        bar.advance("better")
    assert "so far" not in file.getvalue()
    assert "1/2" in file.getvalue()


def test_steps_of_several_units_end_at_the_last_unit():
    said, seconds = io.StringIO(), iter(range(0, 10_000, 61))
    reporter = Reporter(Console(file=said, width=200), clock=lambda: float(next(seconds)))
    with reporter.bar("decoding", 30, step=16) as bar:
        bar.advance()
        assert bar.done == 16
        bar.advance()
        assert bar.done == 30
    assert "decoding: 16 of 30, " in said.getvalue()
    assert "decoding: 30 of 30, " in said.getvalue()
