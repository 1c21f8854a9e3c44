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
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from experiments.reproduce.paper import Paper
from experiments.reproduce.printing import show_overview, show_paper
from experiments.reproduce.run import find_paper, paper_names, reproduce
from jaxspec.errors import InputError
from jaxspec.files import to_json, write_text
from jaxspec.report.terminal import new_console
from jaxspec.runs.progress import Reporter

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
