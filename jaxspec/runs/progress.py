"""Live progress on a terminal, a line that changes in a notebook; elsewhere plain lines, one per stage and one per minute."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from jaxspec.errors import printable
from jaxspec.report.terminal import new_console, notebook_console, say

#: Without a terminal, the most seconds between two lines of a run that works.
PERIOD_S = 60.0

#: In a notebook, the most seconds between two of its lines.
_NOTEBOOK_S = 1.0

#: Progress over bytes is shown in pieces of this many.
_BAR_BYTES = 1 << 20


def in_words(seconds: float) -> str:
    """A time as one would say it: "75 s", "12 min", "3.4 h"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class Reporter:
    """Tells what a run is doing."""

    def __init__(
        self,
        console: Console | None = None,
        *,
        heading: str | None = None,
        period_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Begin.

        Args:
            console: unless given, a line below the cell of a notebook; elsewhere standard error, so that standard output stays
                clean.
            heading: first line, before all others; a run that is refused before that prints only why.
            period_s: most seconds between two lines where there is no terminal; unless given a minute, or in a notebook one.
            clock: tells the time in seconds.
        """
        notebook = notebook_console() if console is None else None
        self.console = console or notebook or new_console(stderr=True)
        usual_s = PERIOD_S if notebook is None else _NOTEBOOK_S
        self._period_s, self._clock = usual_s if period_s is None else period_s, clock
        self._lock = threading.Lock()
        self._began = self._spoke = clock()
        self._doing, self._heading = "", heading
        self._bars: list[_Bar] = []
        self._alive = False

    def line(self, text: str) -> None:
        """One line of information."""
        with self._lock:
            self._doing, self._began = text.removesuffix(" ..."), self._clock()
            self._print(text)

    def doing(self, what: str) -> None:
        """Name what comes next, for lines that say it goes on; nothing is printed now."""
        with self._lock:
            self._doing, self._began = what, self._clock()

    def _print(self, text: str) -> None:
        self._spoke = self._clock()
        self._head()
        say(text, console=self.console)

    def _head(self) -> None:
        heading, self._heading = self._heading, None
        if heading:
            say(heading, console=self.console)

    def beat(self) -> None:
        """Without a terminal, a line about what is being done, if the last one is a period ago."""
        with self._lock:
            if self.console.is_terminal or self._clock() - self._spoke < self._period_s:
                return
            if self._bars:
                self._print(self._bars[-1].state())
            else:
                self._print(f"{self._doing or 'working'}: {self._clock() - self._began:.0f} s so far")

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Within the block, nothing takes longer than a period without a line, be it one long compilation."""
        if self._alive or self.console.is_terminal:
            yield
            return
        over = threading.Event()

        def watch() -> None:
            # Looks more often than it speaks: lines of the work itself shift the next one.
            while not over.wait(self._period_s / 12):
                with contextlib.suppress(OSError):  # the work itself meets it too
                    self.beat()

        self._alive = True
        thread = threading.Thread(target=watch, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self._alive = False

    @contextmanager
    def bar(self, description: str, total: int, *, step: int = 1) -> Iterator[_Bar]:
        """A progress bar; where there is no terminal, lines: one at its beginning, one at its end, one per period.

        Args:
            total: units of work. step: units that each `advance` stands for, of the last one perhaps fewer.
        """
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        columns = (*columns, _LeftColumn(), TextColumn("{task.fields[note]}", markup=False))
        live = self.console.is_terminal
        if live:
            self._head()
        else:
            self.line(f"{description} ...")
        with self.alive(), Progress(*columns, console=self.console, disable=not live, transient=False) as progress:
            bar = _Bar(progress, description, total, step, self._clock, self.beat)
            self._bars.append(bar)
            try:
                yield bar
            finally:
                self._bars.remove(bar)
        if not live:
            note = f"{bar.note}, " if bar.note else ""
            self.line(f"{description}: {note}done in {self._clock() - bar.began:.0f} s")
            self.doing(f"after {description}")  # what comes next, until it says its name

    @contextmanager
    def bytes_bar(self, description: str, total: int) -> Iterator[Callable[[int, str], None]]:
        """A bar over bytes, in mebibytes: it yields a function of bytes done since its last call and a note."""
        done = 0

        def advance(count: int, note: str) -> None:
            nonlocal done
            done += count
            shown.jump(done // _BAR_BYTES, note)

        with self.bar(f"{description}, MiB", max(1, total // _BAR_BYTES)) as shown:
            yield advance


class _LeftColumn(ProgressColumn):
    """Time left, as the lines have it."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["bar"].left())


class _Bar:
    def __init__(
        self,
        progress: Progress,
        description: str,
        total: int,
        step: int,
        clock: Callable[[], float],
        beat: Callable[[], None],
    ):
        description = printable(description)
        self._description, self._total, self._step = description, total, step
        self._clock, self._beat = clock, beat
        self.began, self.done, self.note = clock(), 0, ""
        self._first, self._last = (self.began, 0), self.began
        self._progress, self._task = progress, progress.add_task(description, total=total, note="", bar=self)

    def state(self) -> str:
        """How far it is, in a line."""
        parts = [f"{self.done} of {self._total}", f"{self._clock() - self.began:.0f} s so far"]
        left = self.left()
        text = f"{self._description}: {', '.join([*parts, left] if left else parts)}"
        return f"{text}; {self.note}" if self.note else text

    def left(self) -> str:
        """Time left in words; nothing before the first unit and after the last.

        Units after the first tell their pace, since the first one compiles.
        """
        remaining = self._total - self.done
        if not 0 < remaining < self._total:
            return ""
        began, before = self._first if self.done > self._first[1] else (self.began, 0)
        pace_s = (self._last - began) / (self.done - before)
        since_s = min(self._clock() - self._last, pace_s)
        return f"about {in_words(pace_s * remaining - since_s)} left"

    def advance(self, note: str | None = None) -> None:
        """One step further, with a note that replaces the last one."""
        self.jump(min(self.done + self._step, self._total), self.note if note is None else note)

    def jump(self, done: int, note: str) -> None:
        """To `done` units."""
        self.done, self.note, self._last = done, printable(note), self._clock()
        if self._first[1] == 0:
            self._first = self._last, done
        self._progress.update(self._task, completed=done, note=self.note)
        self._beat()
