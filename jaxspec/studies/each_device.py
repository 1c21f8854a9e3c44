"""A run that makes one result for each device of its configuration, and one page of them all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from jaxspec.results.priced_results import PricedResult
from jaxspec.runs.carrying_out import carry_out_records
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.progress import Reporter
from jaxspec.settings.base import Settings

__all__ = ["Tell", "for_each_device"]

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
