"""Parts of a sweep that several processes write together, into one folder that all of them see."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from jaxspec.partial_files import living_parts
from jaxspec.runs.processes import Processes

__all__ = ["write_together"]

#: Seconds between two looks at what others do.
POLL_S = 0.5

#: A part that has not grown for so many seconds is taken over; a first one waits for its program to compile.
SILENT_S = 60.0


def write_together(
    parts: Sequence[Path], write: Callable[[Path], None], processes: Processes, *, over: Callable[[], bool]
) -> None:
    """Write every part that is not there, until all are.

    Each process begins at another place and takes the next part that nobody writes. Two that take the same one in the same
    moment write the same bytes under the same name, so that this costs time and nothing else. A process that dies leaves its
    part to the others.

    Args:
        parts: files, in order.
        write: makes a part, whole or not at all.
        over: whether the parts are joined, after which they go.
    """
    start = processes.index * len(parts) // processes.count
    order = [*parts[start:], *parts[:start]]
    others, alone = _Others(), processes.count == 1
    while (left := [path for path in order if not path.exists()]) and not over():
        # A part whose writer is done by now has its name.
        free = next((path for path in left if alone or not (others.write(path) or path.exists())), None)
        if free is None:
            time.sleep(POLL_S)
        else:
            write(free)


class _Others:
    """What can be seen of other processes."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[object, float]] = {}

    def write(self, path: Path) -> bool:
        """Whether another process writes a part: it has begun, and what is there grows."""
        state = sorted(living_parts(path).items())
        if not state:
            return False
        now = time.monotonic()
        if self._seen.get(path, (None, now))[0] != state:
            self._seen[path] = state, now
        return now - self._seen[path][1] < SILENT_S
