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


def test_the_lines_come_while_native_code_runs():
    file = Told("working")
    report = Reporter(Console(file=file), period_s=0.01)
    with report.alive():
        with report.alive():  # a bar within a run
            pass
        assert file.heard.wait(60)  # nobody calls the reporter meanwhile
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]
