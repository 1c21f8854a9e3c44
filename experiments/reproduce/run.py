"""Papers found by their folders, and run: rows, summaries and details of each."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

import experiments.papers
from experiments.reproduce.errors import relative_error, spread_of
from experiments.reproduce.paper import Choice, ComparedCell, Modelled, Outcome, Paper, PrintedTable
from experiments.reproduce.printed import PrintedCell
from experiments.reproduce.verdict import summarise
from jaxspec.errors import InputError

if TYPE_CHECKING:
    from jaxspec.runs.progress import Reporter

__all__ = ["find_paper", "paper_names", "reproduce", "run_paper", "table_rows"]

SCHEMA_VERSION = 1


def paper_names() -> list[str]:
    """Names of all papers: the folders in `experiments/papers`."""
    return sorted(found.name for found in pkgutil.iter_modules(experiments.papers.__path__) if found.ispkg)


def find_paper(name: str) -> Paper:
    """A paper's declaration.

    Raises:
        InputError: there is no such paper.
    """
    if name not in paper_names():
        raise InputError(f"no paper {name!r}; there are {', '.join(paper_names())}: name some of them, or none for all")
    return importlib.import_module(f"experiments.papers.{name}.paper").PAPER


def table_rows(
    paper: Paper, table: PrintedTable, model: Callable[[PrintedCell], Modelled | None], choices: Sequence[Choice]
) -> list[dict[str, Any]]:
    """One row for each covered cell of a table; what a choice was made in view of is no prediction."""
    rows = []
    for cell in paper.cells(table):
        modelled = model(cell)
        if modelled is not None:
            by_outcome = [choice.name for choice in choices if choice.calibrates(cell)]
            status = "calibrated" if by_outcome and modelled.status == "predicted" else modelled.status
            rows.append(
                {
                    "paper": paper.name,
                    "table": table.name,
                    "conditions": dict(cell.conditions),
                    "metric": cell.metric,
                    "unit": cell.unit,
                    "paper_value": cell.value,
                    "model_value": float(modelled.value),
                    "relative_error": relative_error(float(modelled.value), cell.value),
                    "status": status,
                    "note": "; ".join(text for text in (modelled.note, cell.note) if text),
                    "doubt": modelled.doubt,
                    "by_outcome": by_outcome,
                    "as_printed": {},
                }
            )
    return rows


def _summary(paper: Paper, table: PrintedTable, rows: Sequence[ComparedCell], solved: Any) -> dict[str, Any]:
    floats = lambda numbers: {name: float(value) for name, value in numbers.items()}
    return summarise(table, rows, cells=len(paper.cells(table)), fitted=floats(table.fitted(solved))) | {
        "inherits": {where: floats(numbers(solved)) for where, numbers in table.inherits.items()}
    }


def _table(
    paper: Paper, table: PrintedTable, solved: Any, readings: bool
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows and summary, with what both would be under each printed reading."""
    rows = table_rows(paper, table, table.model(solved), table.choices)
    summary = _summary(paper, table, rows, solved)
    summary["choices_by_outcome"] = []
    for choice in table.choices:
        if not choice.seen:
            continue
        entry = {key: getattr(choice, key) for key in ("name", "used", "printed", "why", "seen")}
        entry["choice"] = choice.in_words()
        entry["cells"] = sum(choice.name in row["by_outcome"] for row in rows)
        entry["printed_reading"] = None
        if readings and choice.as_printed is not None:
            others = table_rows(paper, table, choice.as_printed(solved), ())
            for row, other in zip(rows, others, strict=True):
                if choice.name in row["by_outcome"]:
                    row["as_printed"][choice.name] = other["model_value"]
            reading = summarise(table, others, cells=summary["cells"], fitted={})
            in_view = [
                other for row, other in zip(rows, others, strict=True) if choice.name in row["by_outcome"]
            ] or others
            entry["printed_reading"] = {key: reading[key] for key in ("judged", "reproduced", "verdict")} | {
                "relative_error": spread_of([row["relative_error"] for row in in_view])
            }
        summary["choices_by_outcome"].append(entry)
    return rows, summary


class _Silent(contextlib.nullcontext):
    """In place of a progress bar."""

    def __enter__(self) -> _Silent:
        return self

    def advance(self, note: str) -> None:
        """Say nothing."""


def run_paper(paper: Paper, *, seed: int = 0, reporter: Reporter | None = None, readings: bool = True) -> Outcome:
    """All tables of a paper, then its details.

    Args:
        reporter: tells how far it is; None: nothing is told.
        readings: whether what the paper prints is put back for each choice, which may need another fit.
    """
    steps = 1 + len(paper.tables) + len(paper.details)
    with reporter.bar(paper.name, steps) if reporter else _Silent() as bar:
        solved = paper.solve(seed)
        bar.advance("fitted")
        rows, summary = [], {}
        for table in paper.tables:
            found, summary[table.name] = _table(paper, table, solved, readings)
            rows += found
            bar.advance(table.name)
        outcome = Outcome(solved, rows, summary)
        for detail in paper.details:
            outcome.details[detail.name] = detail.value(outcome)
            bar.advance(detail.name)
    return outcome


def reproduce(
    papers: Sequence[Paper], *, seed: int = 0, reporter: Reporter | None = None, figures: Path | None = None
) -> dict[str, Any]:
    """The whole result, as it is written to JSON.

    Args:
        reporter: tells how far it is.
        figures: folder for the figures; none are drawn without it.
    """
    result: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "seed": seed, "rows": [], "summary": {}, "papers": {}}
    for paper in papers:
        began = time.perf_counter()
        outcome = run_paper(paper, seed=seed, reporter=reporter)
        result["rows"] += outcome.rows
        result["summary"] |= {f"{paper.name}/{name}": summary for name, summary in outcome.summary.items()}
        if figures:
            from experiments.reproduce.figures import write_figures

            write_figures(paper, outcome, figures)
        result["papers"][paper.name] = {
            "title": paper.title,
            "details": outcome.details,
            "missed_bars": paper.missed_bars(outcome),
            "seconds": time.perf_counter() - began,
        }
    return result | {"versions": {"jax": jax.__version__, "numpy": np.__version__}}
