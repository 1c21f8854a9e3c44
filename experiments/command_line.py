"""How experiments end on the command line: bad input in one line, tables, figures, one JSON file."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from jaxspec.errors import InputError, one_line
from jaxspec.partial_files import to_json, write_text
from jaxspec.report.terminal import Table, new_console

__all__ = ["add_outputs", "print_table", "run_and_write", "write_table"]


def add_outputs(parser: argparse.ArgumentParser, *, plots: bool = True) -> None:
    """Give a parser the options that say where results go."""
    parser.add_argument("--json", type=Path)
    if plots:
        parser.add_argument("--out", type=Path, help="folder for the plots; none are drawn without it")


def print_table(
    title: str, headings: Iterable[str], rows: Iterable[Iterable[str]], *, caption: str = "", left: int = 1
) -> None:
    """A table on standard output, whose first columns are aligned to the left, numbers to the right."""
    table = Table(title, caption)
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place < left else "right")
    for row in rows:
        table.add_row(*row)
    new_console().print(table)


def write_table(
    page: Path, prog: str, headings: Sequence[str], rows: Iterable[Iterable[str]], *, left: int = 1
) -> None:
    """Write a table anew in a page in Markdown, between the two lines that name what writes it.

    Raises:
        InputError: the page has no such lines.
    """
    text, begin, end = page.read_text(encoding="utf-8"), f"<!-- from here: {prog} -->", "<!-- to here -->"
    before, found, rest = text.partition(begin)
    if not found or end not in rest:
        raise InputError(f"{page} has no lines {begin} and {end}; put them where the table belongs")
    lines = (f"| {' | '.join(cells)} |" for cells in rows)
    head = [f"| {' | '.join(headings)} |", f"|{'---|' * left}{'---:|' * (len(headings) - left)}"]
    write_text(page, "\n".join([before + begin, *head, *lines, end]) + rest.partition(end)[2])


def run_and_write(
    parser: argparse.ArgumentParser,
    args: argparse.Namespace,
    run: Callable[[], dict[str, Any]],
    show: Callable[[dict[str, Any]], None],
    plot: Callable[[dict[str, Any], Path], None] | None = None,
) -> None:
    """Run, show, plot, write.

    Args:
        args: with the options of `add_outputs`.
        plot: into the folder (or file) of `args.out`; None where there is no such option.
    """
    try:
        result = run()
    except InputError as error:
        parser.exit(2, f"{parser.prog}: {one_line(error)}\n")
    show(result)
    if plot is not None and args.out:
        plot(result, args.out)
    if args.json:
        write_text(args.json, to_json({"schema_version": 1, **result}))
