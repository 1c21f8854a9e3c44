"""How experiments end on the command line: bad input in one line, tables, figures, one JSON file."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from jaxspec.errors import InputError, one_line
from jaxspec.partial_files import to_json, write_text
from jaxspec.report.terminal import Table, new_console

__all__ = ["add_outputs", "check_page", "existing_file", "print_table", "run_and_write", "write_table"]


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


def existing_file(text: str) -> Path:
    """Type of an argument that names a file to read."""
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is no file; give one that is there")
    return Path(text)


def check_page(parser: argparse.ArgumentParser, page: Path | None) -> None:
    """End with one line where the program cannot write its table in a page, before it begins."""
    try:
        if page is not None:
            _parts_of_page(page, parser.prog)
    except InputError as error:
        parser.exit(2, f"{parser.prog}: {one_line(error)}\n")


def _parts_of_page(page: Path, prog: str) -> tuple[str, str]:
    """What a page in Markdown has up to the line after which a program writes its table, and from the line that ends it.

    Raises:
        InputError: there is no such page, or no such lines in it.
    """
    begin, end = f"<!-- from here: {prog} -->\n", "<!-- to here -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin) if page.is_file() else ("", "", "")
    if not found or end not in rest:
        raise InputError(f"{page} has no lines {begin.strip()} and {end}; put them where the table belongs")
    return before + begin, rest[rest.index(end) :]


def write_table(
    page: Path, prog: str, headings: Sequence[str], rows: Iterable[Iterable[str]], *, left: int = 1
) -> None:
    """Write a program's table anew in a page. Raises InputError: there is no such page, or no place in it."""
    before, after = _parts_of_page(page, prog)
    rule = f"|{'---|' * left}{'---:|' * (len(headings) - left)}"
    lines = [f"| {' | '.join(headings)} |", rule, *(f"| {' | '.join(cells)} |" for cells in rows)]
    write_text(page, before + "".join(f"{line}\n" for line in lines) + after)


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
