"""How experiments end on the command line: bad input in one line, tables, figures, one JSON file."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxspec.errors import InputError, one_line
from jaxspec.partial_files import to_json, write_text

__all__ = ["add_outputs", "run_and_write"]


def add_outputs(parser: argparse.ArgumentParser, *, plots: bool = True) -> None:
    """Give a parser the options that say where results go."""
    parser.add_argument("--json", type=Path)
    if plots:
        parser.add_argument("--out", type=Path, help="folder for the plots; none are drawn without it")


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
