"""A run from its beginning to its end: begun, resumed, or reprinted where it is finished."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import jax

from jaxspec.files import as_stored
from jaxspec.report.formatting import bytes_in_words
from jaxspec.report.terminal import new_console
from jaxspec.results.priced_results import PricedResult
from jaxspec.results.records import Record
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.inputs import input_notes, input_sizes
from jaxspec.runs.machine import peak_device_bytes
from jaxspec.runs.memory import told_in_one_line
from jaxspec.runs.processes import ONE_PROCESS, Processes
from jaxspec.runs.progress import Reporter
from jaxspec.runs.provenance import versions
from jaxspec.runs.steady_inputs import SteadyInputs
from jaxspec.settings.base import Settings, notes
from jaxspec.settings.toml import to_toml

__all__ = ["Prepare", "Tell", "carry_out", "carry_out_records", "for_each_device"]

Found = TypeVar("Found", bound=Record)


#: Loads and checks all that a configuration names, before anything is written; returns the work, which makes the result.
Prepare = Callable[[RunDirectory, Reporter], Callable[[], Any]]


#: Writes the page of a result, as result.json has it, into the run directory.
WritePage = Callable[[Any, Path], object]


#: Name of that page.
_PAGE = "report.html"


#: Bytes of a device's memory whose use is told after a run.
_WORTH_TELLING = 1e9


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
    page: WritePage | None = None,
    page_file: str = _PAGE,
    headline: Collection[str] = (),
    processes: Processes = ONE_PROCESS,
    keeps: bool = True,
) -> tuple[Any, RunDirectory]:
    """Begin, resume or reprint a run.

    Everything that is cheap to tell comes first: `check`, whether the directory belongs to this configuration; then inputs,
    perhaps gigabytes of them, are digested; then `prepare` loads them; then the directory is made.

    Args:
        check: of everything that can be told without reading gigabytes, as names, shapes and short files; raises InputError.
        contents: see `RunDirectory`. A run whose further files are gone is not finished.
        page: writes report.html, and writes it again where it is gone from a finished run; None: there is none.
        page_file: what it writes, or the last of it.
        headline: paths of the main numbers, for `jaxspec runs`: "configurations.tuned.speedup_vs_bf16_ar".
        processes: that do the same work together, each on its part of the arrays: all call this with the same arguments,
            process 0 alone reads and writes the directory, and all return its result.
        keeps: see `RunDirectory`.
    Returns:
        The result as result.json has it, be it new or reprinted, and the directory (closed).
    Raises:
        InputError: bad input, or memory ran out; nothing is lost.
    """
    reporter = reporter or Reporter(None if processes.owns else new_console(stderr=True, quiet=True))
    with processes.kept_together():
        for note in notes(config):
            reporter.line(f"note: {note}")
        if processes.count > 1:
            processes.check_alike(processes.agreed(lambda: _facts(config)))
            reporter.line(f"{processes.count} processes share one mesh")
        steady = SteadyInputs(config, reporter)  # before short files are read, which `check` does
        reporter.doing("reading and checking inputs")
        with reporter.alive():
            processes.agreed(check)
        for note in input_notes(config):
            reporter.line(f"note: {note}")
        options: dict[str, Any] = {
            "out": out,
            "force": force,
            "begin": False,
            "contents": contents,
            "owned": processes.owns,
        }
        directory = processes.agreed(lambda: RunDirectory(command, config, **options))
        directory.keeps = keeps
        with directory:
            digests = processes.told(processes.agreed(lambda: steady.digest() if processes.owns else {}))
            processes.agreed(lambda: directory.compare(digests))
            steady.compare_with(digests)
            directory.check_inputs = steady.check
            if directory.unrecorded:
                reporter.line(
                    f"note: {directory.path} has no digest of {', '.join(directory.unrecorded)}, so that a change since then "
                    "cannot be noticed; --force starts it anew"
                )
            there = lambda: all((directory.path / name).exists() for name in contents)
            finished = processes.told(processes.agreed(lambda: directory.finished() if there() else None))
            if finished is not None:
                reporter.line(f"already finished: {directory.path} (--force starts anew)")
                if page is not None and processes.owns and not (directory.path / page_file).exists():
                    _write_again(page, page_file, finished, directory.path, reporter)
                return finished, directory
            with reporter.alive(), told_in_one_line(config):
                work = processes.agreed(lambda: prepare(directory, reporter))
                processes.agreed(steady.check)
                processes.agreed(directory.begin)
                reporter.line(f"run directory {directory.path}{'; the same command resumes it' if keeps else ''}")
                if directory.shared:
                    reporter.line("note: its file system has no locks; start no second process on this directory")
                reporter.doing("beginning the run")
                result = as_stored(work())  # so that all is shown now as it will be when it is reprinted
                processes.agreed(steady.check)
                # First what nothing else can give: a page that cannot be drawn or written must not take hours of work with it.
                directory.write_result(result, headline)
                if page is not None and directory.owned:
                    reporter.line("writing the report ...")
                    page(result, directory.path)
                if (peak := peak_device_bytes() or 0) >= _WORTH_TELLING:
                    reporter.line(f"memory: at most {bytes_in_words(peak)} of the device were in use")
                return processes.told(result), directory


def _write_again(page: WritePage, file: str, finished: Any, path: Path, reporter: Reporter) -> None:
    """Write the page of a finished run; where that fails, the run's result can be told all the same."""
    reporter.line(f"{file} is not there; it is written from result.json")
    try:
        with reporter.alive():
            page(finished, path)
    except OSError as error:
        reporter.line(f"note: it cannot be written ({error.strerror})")


def _facts(config: Settings) -> dict[str, Any]:
    """What has to be the same on all processes: settings, versions, devices, and input files as far as their sizes tell."""
    return (
        tomllib.loads(to_toml(config))
        | versions()
        | input_sizes(config)
        | {"kind of device": jax.local_devices()[0].device_kind}
    )


def carry_out_records(
    command: str,
    config: Settings,
    prepare: Callable[[RunDirectory, Reporter], Callable[[], list[Found]]],
    *,
    kind: type[Found],
    write: Callable[[list[Found], Path], object] | None = None,
    **how: Any,
) -> tuple[list[Found], RunDirectory]:
    """As `carry_out`, of a study whose work makes a list of records.

    Args:
        kind: of a record.
        write: the page of them all, into the run directory; None: there is none.
        how: see `carry_out`.
    """
    read = lambda entries: [kind.from_plain(entry) for entry in entries]
    page = None if write is None else lambda entries, path: write(read(entries), path)

    def prepared(directory: RunDirectory, reporter: Reporter) -> Callable[[], Any]:
        work = prepare(directory, reporter)
        return lambda: [record.plain() for record in work()]

    result, directory = carry_out(command, config, prepared, page=page, **how)
    return read(result), directory


Parts = TypeVar("Parts")


Result = TypeVar("Result", bound=PricedResult)


#: Tells how many units of one device's work are done, and a note.
Tell = Callable[[int, str], None]


def for_each_device(
    command: str,
    config: Settings,
    check: Callable[[], Mapping[str, Parts]],
    one: Callable[[str, Parts, RunDirectory, Tell], Result],
    write: Callable[[Sequence[Result], Any], object],
    *,
    kind: type[Result],
    out: str | None,
    force: bool,
    reporter: Reporter | None,
    headline: Collection[str],
    work_units: tuple[str, Callable[[Parts], int]] = ("devices", lambda _: 1),
) -> tuple[list[Result], RunDirectory]:
    """Begin, resume or reprint a run of results by device, with a bar over their work.

    Args:
        check: finds and checks what each device is priced with, before anything is written; by device name.
        one: from a device's name and parts to its result; tells how far it is, where a device is more than one unit.
        write: writes the page of all results into the run directory.
        kind: of a result; out, force, reporter, headline: see `carry_out`.
        work_units: what the bar counts, and how many of them a device is.
    Raises:
        InputError: bad input; nothing is lost.
    """
    parts = cache(check)

    def prepare(directory: RunDirectory, reporter: Reporter) -> Callable[[], list[Result]]:
        by_device = parts()

        def work() -> list[Result]:
            results, before = [], 0
            called, units = work_units
            with reporter.bar(called, sum(map(units, by_device.values()))) as bar:
                for name, part in by_device.items():
                    tell = lambda done, note, before=before: bar.jump(before + done, note)
                    results.append(one(name, part, directory, tell))
                    before += units(part)
                    bar.jump(before, name)
            return results

        return work

    how: dict[str, Any] = dict(out=out, force=force, reporter=reporter, headline=headline, keeps=False)
    return carry_out_records(command, config, prepare, check=parts, kind=kind, write=write, **how)
