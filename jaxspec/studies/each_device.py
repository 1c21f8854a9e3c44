"""A run that makes one result for each device of its configuration, and one page of them all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from jaxspec.results.priced_results import PricedResult
from jaxspec.runs.carrying_out import carry_out
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.progress import Reporter
from jaxspec.settings.base import Settings

__all__ = ["for_each_device"]

Parts = TypeVar("Parts")
Result = TypeVar("Result", bound=PricedResult)


def for_each_device(
    command: str,
    config: Settings,
    check: Callable[[], Mapping[str, Parts]],
    one: Callable[[str, Parts, RunDirectory], Result],
    write: Callable[[Sequence[Result], Any], object],
    *,
    kind: type[Result],
    out: str | None,
    force: bool,
    reporter: Reporter | None,
    headline: Collection[str],
) -> tuple[list[Result], RunDirectory]:
    """Begin, resume or reprint a run of results by device, with a bar over devices.

    Args:
        check: finds and checks what each device is priced with, before anything is written; by device name.
        one: from a device's name and parts to its result.
        write: writes the page of all results into the run directory.
        kind: of a result; out, force, reporter, headline: see `carry_out`.
    Raises:
        InputError: bad input; nothing is lost.
    """
    parts = cache(check)

    def prepare(directory: RunDirectory, reporter: Reporter) -> Callable[[], list[dict[str, Any]]]:
        found = parts()

        def work() -> list[dict[str, Any]]:
            results = []
            with reporter.bar("devices", len(found)) as bar:
                for name, part in found.items():
                    results.append(one(name, part, directory))
                    bar.advance(name)
            return [result.plain() for result in results]

        return work

    found, directory = carry_out(
        command,
        config,
        prepare,
        check=parts,
        out=out,
        force=force,
        reporter=reporter,
        page=lambda found, path: write([kind.from_plain(entry) for entry in found], path),
        headline=headline,
    )
    return [kind.from_plain(entry) for entry in found], directory
