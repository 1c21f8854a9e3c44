"""A run from its beginning to its end: begun, resumed, or reprinted where it is finished."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from jaxspec.files import plain
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.inputs import input_digests
from jaxspec.runs.memory import told_in_one_line
from jaxspec.runs.progress import Reporter
from jaxspec.settings.base import Settings, notes

__all__ = ["Prepare", "carry_out"]

#: Loads and checks all that a configuration names, before anything is written; returns the work, which makes the result.
Prepare = Callable[[RunDirectory, Reporter], Callable[[], Any]]


def carry_out(
    command: str,
    config: Settings,
    prepare: Prepare,
    *,
    check: Callable[[], object] = lambda: None,
    out: str | Path | None = None,
    force: bool = False,
    reporter: Reporter | None = None,
    contents: Collection[str] = (),
    headline: Collection[str] = (),
) -> tuple[Any, RunDirectory]:
    """Begin, resume or reprint a run.

    Everything that is cheap to tell comes first: `check`, whether the directory belongs to this configuration; then inputs,
    perhaps gigabytes of them, are digested; then `prepare` loads them; then the directory is made.

    Args:
        check: of everything that can be told without reading gigabytes, as names, shapes and short files; raises InputError.
        contents: see `RunDirectory`. A run whose further files are gone is not finished.
        headline: paths of the main numbers, for `jaxspec runs`: "configurations.tuned.speedup_vs_bf16_ar".
    Returns:
        The result in JSON's own types, and the directory (closed).
    Raises:
        InputError: bad input, or memory ran out; nothing is lost.
    """
    reporter = reporter or Reporter()
    for note in notes(config):
        reporter.line(f"note: {note}")
    with reporter.alive():
        check()
    directory = RunDirectory(command, config, out=out, force=force, begin=False, contents=contents)
    with directory:
        directory.compare(input_digests(config, reporter))
        if directory.unrecorded:
            reporter.line(
                f"note: {directory.path} has no digest of {', '.join(directory.unrecorded)}, so that a change since then "
                "cannot be noticed; --force starts it anew"
            )
        there = all((directory.path / name).exists() for name in contents)
        if there and (finished := directory.finished()) is not None:
            reporter.line(f"already finished: {directory.path} (--force starts anew)")
            return finished, directory
        with reporter.alive(), told_in_one_line(config):
            work = prepare(directory, reporter)
            directory.begin()
            reporter.line(f"run directory {directory.path}; the same command resumes it")
            result = plain(work())
            directory.write_result(result, headline)
        return result, directory
