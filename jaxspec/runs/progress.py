"""Live progress on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from jaxspec.report.terminal import new_console, say


class Reporter:
    """Tells what a run is doing."""

    def __init__(self, console: Console | None = None):
        """Args: console: standard error unless given, so that standard output stays clean."""
        self.console = console or new_console(stderr=True)

    def line(self, text: str) -> None:
        """One line of information."""
        say(text, console=self.console)

    @contextmanager
    def bar(self, description: str, total: int) -> Iterator[_Bar]:
        """A progress bar; where there is no terminal, one line at the beginning and one at the end."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        columns = (*columns, TextColumn("{task.fields[note]}"))
        live = self.console.is_terminal
        if not live:
            self.line(f"{description} ...")
        with Progress(*columns, console=self.console, disable=not live, transient=False) as progress:
            bar = _Bar(progress, progress.add_task(description, total=total, note=""))
            yield bar
        if not live and bar.note:
            self.line(f"{description}: {bar.note}")


class _Bar:
    def __init__(self, progress: Progress, task):
        self._progress, self._task, self.note = progress, task, ""

    def advance(self, note: str | None = None) -> None:
        """One unit further, with a note that replaces the last one."""
        self.note = self.note if note is None else note
        self._progress.update(self._task, advance=1, note=self.note)

    def jump(self, done: int, note: str) -> None:
        """To `done` units."""
        self.note = note
        self._progress.update(self._task, completed=done, note=note)
