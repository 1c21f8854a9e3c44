"""Execute a run: begin it, resume it, or reprint the result of a finished one."""

from __future__ import annotations

import contextlib
import dataclasses
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax

from jaxspec.errors import InputError, one_line
from jaxspec.host.measuring import peak_device_bytes
from jaxspec.partial_files import as_stored
from jaxspec.report.formatting import bytes_in_words
from jaxspec.report.terminal import new_console
from jaxspec.results.network_results import PricedResult
from jaxspec.results.records import Record
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.inputs import InputWatch, input_notes, input_sizes
from jaxspec.runs.processes import ONE_PROCESS, Processes
from jaxspec.runs.progress import Reporter
from jaxspec.runs.run_index import versions
from jaxspec.settings.base import Settings, notes, to_toml

__all__ = ["Prepare", "Tell", "execute_per_device", "execute_record_run", "execute_run", "out_of_memory_as_input_error"]


# Memory that ran out, as one line that says what to change.

#: What XLA says, in whatever it was asked to do, and what it says of a host that cannot give a layer.
_SIGNS = ("RESOURCE_EXHAUSTED", "OUT_OF_MEMORY", "MemoryError", "out of memory", "Out of memory")

#: Settings that a run takes less memory with, and how.
_SAVERS = {
    "calibration_prompts": "fewer --calibration-prompts",
    "windows_per_step": "fewer --windows-per-step",
    "prompts": "fewer --prompts",
    "prompt_tokens": "fewer --prompt-tokens",
}


@contextlib.contextmanager
def out_of_memory_as_input_error(config: Settings) -> Iterator[None]:
    """Within the block, memory that runs out is bad input: of a network, or of settings, that are too large for the machine.

    Raises:
        InputError: memory ran out.
    """
    try:
        yield
    except MemoryError as error:
        raise InputError(_line(config, error)) from error
    except jax.errors.JaxRuntimeError as error:
        if not any(sign in str(error) for sign in _SIGNS):
            raise
        raise InputError(_line(config, error)) from error


def _line(config: Settings, error: BaseException) -> str:
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    streams = ["--stream"] if "stream" in values and not values["stream"] else []
    advice = [*streams, *(words for name, words in _SAVERS.items() if name in values), "a device with more memory"]
    said = one_line(error)
    said = said if len(said) <= 160 else f"{said[:159]}…"
    return f"memory ran out ({said or 'of the host'}); use {', '.join(advice[:-1])}{' or ' * (len(advice) > 1)}{advice[-1]}"


Found = TypeVar("Found", bound=Record)


#: Loads and checks all that a configuration names, before anything is written; returns the work, which makes the result.
Prepare = Callable[[RunDirectory, Reporter], Callable[[], Any]]


#: Writes the page of a result, as result.json has it, into the run directory.
WritePage = Callable[[Any, Path], object]


#: Name of that page.
_PAGE = "report.html"


#: Use of device memory from this size on is printed after a run.
_PRINTED_BYTES = 1e9


class Outputs(NamedTuple):
    """What a run leaves beside its result and checkpoints.

    Attributes:
        contents: see `RunDirectory`. A run whose further files are gone is not finished.
        page: writes report.html, and writes it again where it is gone from a finished run; None: there is none.
        headline: paths of the main numbers, for `jaxspec runs`: "configurations.tuned.speedup_vs_bf16_ar".
    """

    contents: Collection[str] = ()
    page: WritePage | None = None
    headline: Collection[str] = ()


def execute_run(
    command: str,
    config: Settings,
    prepare: Prepare,
    *,
    check: Callable[[], object] = lambda: None,
    out: str | Path | None = None,
    force: bool = False,
    reporter: Reporter | None = None,
    outputs: Outputs | None = None,
    processes: Processes = ONE_PROCESS,
    keeps: bool = True,
) -> tuple[Any, RunDirectory]:
    """Begin, resume or reprint a run.

    Cheap checks come first: `check`, whether the directory belongs to this configuration; then inputs,
    perhaps gigabytes of them, are digested; then `prepare` loads them; then the directory is made.

    Args:
        check: of names, shapes and short files, without reading gigabytes; raises InputError.
        processes: that do the same work together, each on its part of the arrays: all call this with the same arguments,
            process 0 alone reads and writes the directory, and all return its result.
        keeps: see `RunDirectory`.
    Returns:
        The result as result.json has it, be it new or reprinted, and the directory (closed).
    Raises:
        InputError: bad input, or memory ran out; nothing is lost.
    """
    contents, page, headline = outputs or Outputs()
    reporter = reporter or Reporter(None if processes.owns else new_console(stderr=True, quiet=True))
    with processes.together():
        for note in notes(config):
            reporter.line(f"note: {note}")
        if processes.count > 1:
            processes.check_alike(processes.all_or_raise(lambda: _facts(config)))
            reporter.line(f"{processes.count} processes share one mesh")
        watch = InputWatch(config, reporter)  # before short files are read, which `check` does
        reporter.doing("reading and checking inputs")
        with reporter.alive():
            processes.all_or_raise(check)
        for note in input_notes(config):
            reporter.line(f"note: {note}")
        options: dict[str, Any] = {
            "out": out,
            "force": force,
            "begin": False,
            "contents": contents,
            "owned": processes.owns,
        }
        directory = processes.all_or_raise(lambda: RunDirectory(command, config, **options))
        directory.keeps = keeps
        with directory:
            digests = processes.broadcast(processes.all_or_raise(lambda: watch.digest() if processes.owns else {}))
            processes.all_or_raise(lambda: directory.compare(digests))
            watch.compare_with(digests)
            directory.check_inputs = watch.check
            there = lambda: all((directory.path / name).exists() for name in contents)
            finished = processes.broadcast(processes.all_or_raise(lambda: directory.finished() if there() else None))
            if finished is not None:
                reporter.line(f"already finished: {directory.path} (--force starts anew)")
                if page is not None and processes.owns and not (directory.path / _PAGE).exists():
                    _write_again(page, finished, directory.path, reporter)
                return finished, directory
            with reporter.alive(), out_of_memory_as_input_error(config):
                work = processes.all_or_raise(lambda: prepare(directory, reporter))
                processes.all_or_raise(watch.check)
                processes.all_or_raise(directory.begin)
                reporter.line(f"run directory {directory.path}{'; the same command resumes it' if keeps else ''}")
                if directory.shared:
                    reporter.line("note: its file system has no locks; start no second process on this directory")
                reporter.doing("beginning the run")
                result = as_stored(work())  # so that all is shown now as it will be when it is reprinted
                processes.all_or_raise(watch.check)
                # First what nothing else can give: a page that cannot be drawn or written must not take hours of work with it.
                directory.write_result(result, headline)
                if page is not None and directory.owned:
                    reporter.line("writing the report ...")
                    page(result, directory.path)
                if (peak := peak_device_bytes() or 0) >= _PRINTED_BYTES:
                    reporter.line(f"memory: at most {bytes_in_words(peak)} of the device were in use")
                return processes.broadcast(result), directory


def _write_again(page: WritePage, finished: Any, path: Path, reporter: Reporter) -> None:
    """Write the page of a finished run; a failure leaves the result usable."""
    reporter.line(f"{_PAGE} is not there; it is written from result.json")
    try:
        with reporter.alive():
            page(finished, path)
    except (OSError, InputError) as error:
        reporter.line(f"note: it cannot be written ({getattr(error, 'strerror', None) or one_line(error)})")


def _facts(config: Settings) -> dict[str, Any]:
    """What has to be the same on all processes: settings, versions, devices, and input files as far as their sizes tell."""
    return (
        tomllib.loads(to_toml(config))
        | versions()
        | input_sizes(config)
        | {"kind of device": jax.local_devices()[0].device_kind}
    )


def execute_record_run(
    command: str,
    config: Settings,
    prepare: Callable[[RunDirectory, Reporter], Callable[[], list[Found]]],
    *,
    kind: type[Found],
    write: Callable[[list[Found], Path], object] | None = None,
    headline: Collection[str] = (),
    **how: Any,
) -> tuple[list[Found], RunDirectory]:
    """As `execute_run`, of a study whose work makes a list of records.

    Args:
        kind: of a record.
        write: the page of them all, into the run directory; None: there is none.
        headline: see `Outputs`; how: see `execute_run`.
    """
    read = lambda entries: [kind.from_plain(entry) for entry in entries]
    page = None if write is None else lambda entries, path: write(read(entries), path)

    def prepared(directory: RunDirectory, reporter: Reporter) -> Callable[[], Any]:
        work = prepare(directory, reporter)
        return lambda: [record.plain() for record in work()]

    result, directory = execute_run(command, config, prepared, outputs=Outputs(page=page, headline=headline), **how)
    return read(result), directory


Parts = TypeVar("Parts")


Result = TypeVar("Result", bound=PricedResult)


#: Reports how many units of one device's work are done, and a note.
Tell = Callable[[int, str], None]


def execute_per_device(
    command: str,
    config: Settings,
    check: Callable[[], Mapping[str, Parts]],
    one: Callable[[str, Parts, RunDirectory, Tell], Result],
    write: Callable[[Sequence[Result], Any], object],
    *,
    kind: type[Result],
    work_units: tuple[str, Callable[[Parts], int]] = ("devices", lambda _: 1),
    **how: Any,
) -> tuple[list[Result], RunDirectory]:
    """Begin, resume or reprint a run of results by device, with a bar over their work.

    Args:
        check: finds and checks what each device is priced with, before anything is written; by device name.
        one: from a device's name and parts to its result; reports progress where a device has more than one unit.
        write: writes the page of all results into the run directory.
        kind: of a result.
        work_units: what the bar counts, and how many of them a device is.
        how: out, force, reporter and headline, see `execute_record_run`.
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

    return execute_record_run(command, config, prepare, check=parts, kind=kind, write=write, keeps=False, **how)
