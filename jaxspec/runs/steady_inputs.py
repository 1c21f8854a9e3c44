"""Whether the files that a run reads are still those that were digested.

A network that is replaced between its digest and its loading would otherwise be recorded under the digest of the old one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxspec.errors import InputError
from jaxspec.runs.inputs import changed_inputs, input_digests, input_files
from jaxspec.runs.progress import Reporter

__all__ = ["SteadyInputs"]


class _Mark(NamedTuple):
    """What a file's entry tells without reading it."""

    size: int
    modified_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> _Mark | None:
        """None where the file is gone."""
        try:
            found = path.stat()
        except OSError:
            return None
        return cls(found.st_size, found.st_mtime_ns, found.st_ino)


class SteadyInputs:
    """The files that a configuration names, watched from now on."""

    def __init__(self, config: Any, reporter: Reporter | None = None):
        """Args: reporter: see `input_digests`."""
        self._config, self._reporter = config, reporter
        self._digests: Mapping[str, str] = {}
        self._marks = self._seen()

    def digest(self) -> dict[str, str]:
        """See `input_digests`.

        Raises:
            InputError: a file has changed since this was made, or while it was read.
        """
        found = input_digests(self._config, self._reporter)
        before, now = self._marks, self._seen()
        # Not by inodes, which some file systems make anew at every look; nothing but a second digest would tell then.
        known = lambda mark: mark and (mark.size, mark.modified_ns)
        if changed := [key for key, mark in now.items() if known(before.get(key, mark)) != known(mark)]:
            raise InputError(f"{_named(changed)} since this command began; run it again when nothing writes there")
        self._marks = now
        return found

    def compare_with(self, digests: Mapping[str, str]) -> None:
        """Take the digests that the run records: files have them from now on."""
        self._digests = digests

    def check(self) -> None:
        """Look whether a file is another one; those that look so are read again, since a copy of the same is no change.

        Raises:
            InputError: one has another content, or is gone.
        """
        now = self._seen()
        if now == self._marks:
            return
        if changed := changed_inputs(self._digests, input_digests(self._config, self._reporter)):
            raise InputError(
                f"{_named(changed)} since this command took its digest, so that what it reads may be of either version; "
                "nothing of that is recorded: put the old version back, or give the new one a run of its own"
            )
        self._marks = now

    def _seen(self) -> dict[str, _Mark | None]:
        with contextlib.suppress(InputError):  # whoever loads the files says what is wrong with them
            return {key: _Mark.of(path) for key, path in input_files(self._config).items()}
        return {}


def _named(changed: list[str]) -> str:
    return f"{', '.join(changed)} {'has' if len(changed) == 1 else 'have'} changed"
