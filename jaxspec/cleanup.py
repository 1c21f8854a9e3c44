"""Unfinished work of a process, so that an interrupt can undo it and print a true line. Standard library only."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

__all__ = ["PENDING", "PendingWork"]

#: Seconds that an interrupt waits for files to get their names.
_PATIENCE_S = 0.5


class PendingWork:
    """Unfinished work of this process.

    Attributes:
        lock: held while files get their names, so that an interrupt falls before or after that.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._undo: dict[int, Callable[[], None]] = {}
        self._written: deque[Path] = deque(maxlen=4)
        self._run: Callable[[], str] | None = None

    def begin(self, owner: object, undo: Callable[[], None]) -> None:
        """Note work that `undo` takes back."""
        self._undo[id(owner)] = undo

    def end(self, owner: object) -> None:
        """Forget work that is done or taken back."""
        self._undo.pop(id(owner), None)

    def written(self, path: Path) -> None:
        """Note a file that is whole."""
        self._written.append(path)

    def run(self, tell: Callable[[], str] | None) -> None:
        """Note what can be said of the run directory in use; None: there is none."""
        self._run = tell

    def abandon(self) -> str:
        """Take back all unfinished work, for a process that ends now: other threads that would write wait for ever.

        Returns:
            one line about what is left.
        """
        held = self.lock.acquire(timeout=_PATIENCE_S)
        line = self.line()
        for undo in list(self._undo.values()) if held else ():  # otherwise the next run does it
            with contextlib.suppress(Exception):
                undo()
        return line

    def line(self) -> str:
        """What an interrupt leaves at this moment."""
        left = "interrupted; nothing is half-written"
        if self._run is not None:
            return f"{left}; {self._run()}"
        if self._written:
            return f"{left}; written before that: {', '.join(map(str, self._written))}"
        return f"{left}; the same command can be run again"


#: Of this process.
PENDING = PendingWork()
