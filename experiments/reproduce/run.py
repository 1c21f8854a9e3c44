"""Papers found by their folders, and run: rows, summaries and details of each."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

import experiments.papers
from experiments.reproduce.errors import relative_error
from experiments.reproduce.paper import Outcome, Paper, PrintedTable
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


def table_rows(paper: Paper, table: PrintedTable, solved: Any) -> list[dict[str, Any]]:
    """One row for each covered cell of a table."""
    model, rows = table.model(solved), []
    for cell in paper.cells(table):
        modelled = model(cell)
        if modelled is not None:
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
                    "status": modelled.status,
                    "note": "; ".join(text for text in (modelled.note, cell.note) if text),
                    "doubt": modelled.doubt,
                }
            )
    return rows


class _Silent(contextlib.nullcontext):
    """In place of a progress bar."""

    def __enter__(self) -> _Silent:
        return self

    def advance(self, note: str) -> None:
        """Say nothing."""


def run_paper(paper: Paper, *, seed: int = 0, reporter: Reporter | None = None) -> Outcome:
    """All tables of a paper, then its details.

    Args:
        reporter: tells how far it is; None: nothing is told.
    """
    steps = 1 + len(paper.tables) + len(paper.details)
    with reporter.bar(paper.name, steps) if reporter else _Silent() as bar:
        solved = paper.solve(seed)
        bar.advance("fitted")
        rows, summary = [], {}
        for table in paper.tables:
            found = table_rows(paper, table, solved)
            fitted = {name: float(value) for name, value in table.fitted(solved).items()}
            summary[table.name] = summarise(table, found, cells=len(paper.cells(table)), fitted=fitted)
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
