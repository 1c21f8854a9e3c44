"""Lines without a terminal: one per stage, one per minute, by a clock of the test's own."""

import io

from rich.console import Console

from jaxspec.runs.progress import Reporter


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


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
