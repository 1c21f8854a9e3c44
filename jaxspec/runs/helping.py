"""A run directory in the eyes of a process that helps: process 0 begins and finishes the run, the others look on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from jaxspec.errors import InputError
from jaxspec.files import read_json
from jaxspec.runs.directory import differing_settings, run_path
from jaxspec.runs.inputs import changed_inputs, input_digests
from jaxspec.runs.kept import find_run
from jaxspec.runs.processes import Processes
from jaxspec.settings.base import Settings

__all__ = ["HelpedRun"]

#: Seconds between two looks.
POLL_S = 0.5

#: Seconds until what another machine wrote is seen here: network file systems remember for a while what was not there.
VISIBLE_S = 40.0

#: Seconds that a helper waits for the result where it cannot see whether process 0 lives.
PATIENCE_S = 3600.0


class HelpedRun:
    """The run that process 0 has begun, for one of the others.

    Attributes:
        path: the run directory.
    """

    def __init__(self, command: str, config: Settings, processes: Processes, *, out: str | Path | None):
        """Find the run once all processes have met.

        Raises:
            InputError: it is not there, is of other settings, or was begun with other input files.
        """
        self.path, self._processes = run_path(command, config, out), processes
        settings = self.path / "config.toml"
        until = time.monotonic() + VISIBLE_S
        while not settings.is_file() and time.monotonic() < until:
            time.sleep(POLL_S)
        if not settings.is_file():
            raise InputError(
                f"{processes} sees no run directory {str(self.path)!r}: process 0 could not begin it, see its message, or it "
                "lies elsewhere; give an --out that all processes see"
            )
        if differing := differing_settings(settings, config):
            raise InputError(
                f"{processes} has other settings than run directory {str(self.path)!r} ({', '.join(differing)}); start all "
                "processes with the same command"
            )
        if changed := changed_inputs(find_run(self.path).inputs, input_digests(config)):
            raise InputError(
                f"{processes} reads another {', '.join(changed)} than process 0; give files that all processes see"
            )
        # Elsewhere locks say nothing, as on most network file systems.
        self._sees_locks = find_run(self.path).state == "running"

    @property
    def finished(self) -> bool:
        """Whether the result is there."""
        return find_run(self.path).finished

    def result(self) -> Any:
        """The result in JSON's own types, once process 0 has written it.

        Raises:
            InputError: process 0 has ended without it.
        """
        until = time.monotonic() + PATIENCE_S
        while not self.finished:
            ended = self._sees_locks and find_run(self.path).state == "unfinished"
            if (ended or time.monotonic() > until) and not self.finished:
                raise InputError(
                    f"process 0 of {self._processes.count} ended without a result; run directory {str(self.path)!r} keeps what "
                    "is done, and the same command resumes it, with as many processes as you like"
                )
            time.sleep(POLL_S)
        return read_json(self.path / "result.json")
