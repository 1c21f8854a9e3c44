"""The papers' tables, reproduced: each printed cell beside a model's value, and a verdict for each table.

Each row has a status. `predicted`: no number was fitted to the cell's table. `calibrated`: numbers were fitted to the cell.
`input`: the printed value itself went in. Each table names its fitted numbers, modelling choices and doubts, and the errors
of the simplest predictors (a constant, or the paper's own other column) on the same cells. A table is reproduced only if its
predicted cells beat all of these.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from experiments.reproduce.paper import ComparedCell, Detail, Paper, PrintedTable
from experiments.reproduce.run import find_paper, paper_names, reproduce
from jaxspec.errors import InputError
from jaxspec.partial_files import to_json, write_text
from jaxspec.report.terminal import Table, new_console, say, show
from jaxspec.runs.progress import Reporter

__all__ = ["show_overview", "show_paper"]


def show_paper(console: Console, paper: Paper, result: Mapping[str, Any]) -> None:
    """All rows of a paper, a table each with its summary, then its details."""
    say(f"{paper.title} ({paper.name})\n", console=console)
    for table in paper.tables:
        rows = [row for row in result["rows"] if (row["paper"], row["table"]) == (paper.name, table.name)]
        _show_table(console, table, rows, result["summary"][f"{paper.name}/{table.name}"])
    outcome = result["papers"][paper.name]
    for detail in paper.details:
        if detail.columns:
            _show_detail(console, detail, outcome["details"][detail.name])
    say("\n".join(outcome["missed_bars"]) or f"{paper.name}: all bars are met.", console=console)
    say("", console=console)


def show_overview(console: Console, summaries: Mapping[str, Mapping[str, Any]]) -> None:
    """One line per table: cells by status, error of what is judged, the simplest predictor's, verdict."""
    table = Table(
        title="Median (largest) relative error of predicted cells; of calibrated ones in [ ], which test nothing. "
        "Fits: fitted numbers + choices by outcome + inherited ones of both"
    )
    for heading in (
        "table",
        "cells",
        "covered",
        "input",
        "calibrated",
        "predicted",
        "fits",
        "model",
        "simplest predictor",
    ):
        table.add_column(heading, justify="left" if heading == "table" else "right")
    table.add_column("verdict")
    table.add_column("cause")
    for name, summary in summaries.items():
        errors = summary["relative_error"]
        counts = [str(errors.get(status, {"cells": 0})["cells"]) for status in ("input", "calibrated", "predicted")]
        ours = summary["judged"]
        words = _short(ours) if ours else f"[{_short(errors['calibrated'])}]" if "calibrated" in errors else ""
        peers = summary["simplest_predictors"].values()
        peer = min(peers, key=lambda peer: (peer["median"] is None, peer["median"]), default=None)
        table.add_row(
            name,
            str(summary["cells"]),
            str(summary["covered"]),
            *counts,
            _fits(summary),
            words,
            _short(peer),
            summary["verdict"],
            summary["cause"].partition(":")[0],
        )
    show(table, console=console)


def _show_table(
    console: Console, declared: PrintedTable, rows: Sequence[ComparedCell], summary: Mapping[str, Any]
) -> None:
    table = Table(title=f"{declared.title}: {summary['covered']} of {summary['cells']} cells")
    # Values under the printed readings are beside the model's, where a choice was made by outcome.
    beside = ("as printed",) if any(row["as_printed"] for row in rows) else ()
    for heading in ("cell", "metric", "paper", "model", "error", *beside, "status", "note"):
        table.add_column(heading, justify="right" if heading in ("paper", "model", "error", *beside) else "left")
    for row in rows:
        label = ", ".join(row["conditions"][key] for key in declared.label if key in row["conditions"])
        error = "" if row["relative_error"] is None else f"{row['relative_error']:.2%}"
        note = "; ".join(text for text in (row["doubt"] and f"in doubt: {row['doubt']}", row["note"]) if text)
        numbers = (f"{row['paper_value']:g}", f"{row['model_value']:.4g}", error)
        others = [", ".join(f"{value:.4g}" for value in row["as_printed"].values())] if beside else []
        table.add_row(label, row["metric"], *numbers, *others, row["status"], note)
    show(table, console=console)
    for line in _lines(summary):
        say(f"  {line}", console=console, indent="    ")
    say("", console=console)


def _lines(summary: Mapping[str, Any]) -> list[str]:
    lines = []
    for status, errors in summary["relative_error"].items():
        words = {"input": ": no prediction", "calibrated": ": fitted, no prediction", "predicted": ""}[status]
        lines.append(f"{status}: {_spread(errors)}{words}")
    if summary["in_doubt"]:
        lines.append(f"in doubt: {_spread(summary['in_doubt'])}")
    for metric, entry in summary["by_metric"].items():
        for status, peers in entry["simplest_predictors"].items():
            for name, peer in peers.items():
                if status == "input" and not peer["model"]["max"]:
                    continue  # printed values repeated
                lines.append(f"{metric}, {status}: model {_spread(peer['model'])}; {name} {_spread(peer)}")
    where = f", to {summary['fitted_to']}" if summary["fitted_to"] else ""
    lines.append(f"fitted: {_numbers(summary['fitted'])}{where}")
    lines += [f"inherited, fitted to {cells}: {_numbers(values)}" for cells, values in summary["inherits"].items()]
    by_outcome = {choice["choice"]: _as_printed(choice) for choice in summary["choices_by_outcome"]}
    lines += [f"chosen: {text}{by_outcome.get(text, '')}" for text in summary["choices"]]
    lines += [f"doubt: {text}" for text in summary["doubts"]]
    return [*lines, summary["verdict"], *([f"cause: {summary['cause']}"] if summary["cause"] else [])]


def _numbers(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} = {value:.4g}" for name, value in values.items()) or "nothing"


def _as_printed(choice: Mapping[str, Any]) -> str:
    """What follows a choice by outcome: how many cells it calibrates, and the result under the printed reading."""
    where = f", {choice['cells']} cells of this table" if choice["cells"] else ", inherited"
    reading = choice["printed_reading"]
    if reading is None:
        return where
    return f"{where}; AS PRINTED: {_spread(reading['relative_error'])}; if no choice counted, {reading['verdict']}"


def _fits(summary: Mapping[str, Any]) -> str:
    """Fitted numbers + choices by outcome + inherited ones; empty for none."""
    choices = summary["choices_by_outcome"]
    own = sum(choice["cells"] > 0 for choice in choices)
    inherited = sum(map(len, summary["inherits"].values())) + len(choices) - own
    counts = (len(summary["fitted"]), own, inherited)
    return " + ".join(map(str, counts)) if any(counts) else ""


def _show_detail(console: Console, detail: Detail, value: Any) -> None:
    entries = list(detail.entries(value))
    cells = [[form.format(**entry) for form in detail.columns.values()] for entry in entries]
    table = Table(title=detail.title)
    for place, heading in enumerate(detail.columns):
        numbers = all(row[place][:1] in "+-0123456789" for row in cells)
        table.add_column(heading, justify="right" if place and numbers else "left")
    for row in cells:
        table.add_row(*row)
    show(table, console=console)


def _spread(errors: Mapping[str, Any]) -> str:
    if errors["median"] is None:
        return f"none known ({errors['cells']} cells)"
    return f"median {errors['median']:.2%}, max {errors['max']:.2%} ({errors['cells']} cells)"


def _short(errors: Mapping[str, Any] | None) -> str:
    return "" if errors is None or errors["median"] is None else f"{errors['median']:.1%} ({errors['max']:.1%})"


PROGRAM = "python -m experiments.reproduce"

EXAMPLES = f"""examples:
  {PROGRAM}                         all papers
  {PROGRAM} huffllm --out figures   one paper, with its figures as PNG
  {PROGRAM} --json results.json     rows and summaries for other programs

exit codes: 0 done, whatever is reproduced; 1 a bug of ours; 2 bad input; 130 interrupted."""


class _Parser(argparse.ArgumentParser):
    """Bad input in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{PROGRAM}: {message}; see --help\n")


class _Help(argparse.Action):
    """Help that lists the papers, which are imported for it alone."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        papers = [find_paper(name) for name in paper_names()]
        wide = max(len(paper.name) for paper in papers)
        lines = [f"  {paper.name:{wide}}  {paper.title} ({_minutes(paper)})" for paper in papers]
        parser.epilog = "\n".join(["papers:", *lines, "", EXAMPLES])
        parser.print_help()
        parser.exit()


def _minutes(paper: Paper) -> str:
    return f"{60 * paper.minutes:.0f} s" if paper.minutes < 1 else f"{paper.minutes:.0f} min"


def _checked(read: Callable[[str], object]) -> Callable[[str], object]:
    """A reader of an argument whose `InputError` argparse prints as it is."""

    def checked(text: str) -> object:
        try:
            return read(text)
        except InputError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def _seed(text: str) -> int:
    if not text.strip().isdecimal():
        raise InputError(f"{text!r} came; give a whole number from 0")
    return int(text)


def _writable(text: str, *, folder: bool) -> Path:
    """A path that can be written as far as is known before the work begins."""
    path = Path(text).absolute()
    there = next(parent for parent in (path, *path.parents) if parent.exists())
    if not os.access(there, os.W_OK) or (there != path and not there.is_dir()):
        raise InputError(f"{there} cannot be written to; name another {'folder' if folder else 'file'}")
    if path.exists() and path.is_dir() != folder:
        raise InputError(f"{text} is {'a file' if folder else 'a folder'}; name a {'folder' if folder else 'file'}")
    return path


def _write(path: Path, text: str) -> None:
    try:
        write_text(path, text)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}); name another file") from error


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "papers", metavar="PAPER", nargs="*", type=_checked(find_paper), help="all unless some are named"
    )
    file = _checked(lambda text: _writable(text, folder=False))
    folder = _checked(lambda text: _writable(text, folder=True))
    parser.add_argument("--json", metavar="FILE", type=file, help="write rows, summaries and details")
    parser.add_argument("--out", metavar="FOLDER", type=folder, help="draw figures as PNG; none without it")
    parser.add_argument("--seed", type=_checked(_seed), default=0, help="of sampled weights; default %(default)s")
    parser.add_argument("-h", "--help", action=_Help, nargs=0, help="show this and the papers")
    return parser


def main() -> None:
    """Run, show, write."""
    parser = _parser()
    args = parser.parse_args()
    papers = list({paper.name: paper for paper in args.papers or map(find_paper, paper_names())}.values())
    try:
        result = reproduce(papers, seed=args.seed, reporter=Reporter(), figures=args.out)
        console = new_console()
        for paper in papers:
            show_paper(console, paper, result)
        show_overview(console, result["summary"])
        if args.json:
            _write(args.json, to_json(result))
    except InputError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        sys.stderr.write(f"{PROGRAM}: interrupted; nothing unfinished is left\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
