"""Declaration of a paper: its tables, their models, fitted numbers, choices, doubts and simplest predictors.

A paper is a folder `experiments/papers/<name>/` with `paper.py`, which defines `PAPER`, and `data/<name>_<table>.csv`, the
printed numbers. Command line, JSON, printing, verdicts and the figure of errors are written once, in this package.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from matplotlib.figure import Figure

from experiments.reproduce.printed import PrintedCell, printed_cells

__all__ = [
    "STATUSES",
    "ComparedCell",
    "Detail",
    "MakePredictor",
    "Modelled",
    "Outcome",
    "Paper",
    "Predictor",
    "PrintedTable",
    "Status",
    "as_printed",
]

Status = Literal["input", "calibrated", "predicted"]

#: `predicted`: no number was fitted to the cell's table. `calibrated`: numbers were fitted to the cell, or it equals such a
#: cell by construction. `input`: the printed value itself went in, or follows from printed cells by arithmetic alone.
STATUSES: tuple[Status, ...] = ("input", "calibrated", "predicted")

#: A printed cell and the model's value, as in the JSON.
ComparedCell = Mapping[str, Any]

#: A guess at a row's printed value, or None; and how it is made from all rows that are compared.
Predictor = Callable[[ComparedCell], float | None]
MakePredictor = Callable[[Sequence[ComparedCell]], Predictor]


@dataclasses.dataclass(frozen=True)
class Modelled:
    """Model's value for one printed cell.

    Attributes:
        value: in the cell's unit.
        note: printed beside the cell.
        doubt: why the printed cell cannot be right; the verdict leaves it out, the errors do not.
    """

    value: float
    status: Status
    note: str = ""
    doubt: str = ""


def as_printed(cell: PrintedCell, note: str = "") -> Modelled:
    """The printed value repeated: an input of the model."""
    return Modelled(cell.value, "input", note)


def _nothing(solved: Any) -> dict[str, float]:
    return {}


@dataclasses.dataclass(frozen=True)
class PrintedTable:
    """One printed table, or the numbers that the text states of a figure.

    Attributes:
        name: stem of its CSV without the paper's prefix, or "figN".
        title: as a reader of the paper would look for it.
        model: from what `Paper.solve` returned, a function of one cell; None for a cell that is not covered.
        label: conditions that tell its rows from each other in print.
        simplest: by name, a function that takes the rows to be compared and returns a predictor of one row's printed value;
            None where it says nothing of a row.
        fitted: from what `Paper.solve` returned, the numbers that were fitted for this table, to any cells.
        fitted_to: the cells they were fitted to, in words.
        choices: what the paper leaves open, and what was chosen.
        doubts: where the printed numbers contradict themselves, or what the comparison cannot show.
        source: stem of the CSV, where it is not `name`.
        where: which of its cells belong to the table.
    """

    name: str
    title: str
    model: Callable[[Any], Callable[[PrintedCell], Modelled | None]]
    label: tuple[str, ...]
    simplest: Mapping[str, MakePredictor]
    fitted: Callable[[Any], Mapping[str, float]] = _nothing
    fitted_to: str = ""
    choices: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    source: str = ""
    where: Callable[[PrintedCell], bool] = lambda cell: True


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A paper's result.

    Attributes:
        solved: what `Paper.solve` returned.
        rows: of all its tables.
        summary: by name of the table.
        details: by name; all of them once figures are drawn and bars are looked at.
    """

    solved: Any
    rows: list[dict[str, Any]]
    summary: dict[str, dict[str, Any]]
    details: dict[str, Any] = dataclasses.field(default_factory=dict)

    def of(self, table: str) -> list[dict[str, Any]]:
        """Rows of one table."""
        return [row for row in self.rows if row["table"] == table]


@dataclasses.dataclass(frozen=True)
class Detail:
    """Numbers beside the tables: variants, ablations, what follows for other chips.

    Attributes:
        name: its key in the JSON.
        title: above the printed table.
        value: what goes into the JSON.
        columns: heading and format string of each printed column; its fields are the keys of an entry.
        entries: the printed entries, from the value; the value itself unless given.
    """

    name: str
    title: str
    value: Callable[[Outcome], Any]
    columns: Mapping[str, str]
    entries: Callable[[Any], Iterable[Mapping[str, Any]]] = lambda value: value


@dataclasses.dataclass(frozen=True)
class Paper:
    """A paper and its reproduction.

    Attributes:
        name: of its folder, and prefix of its CSVs.
        title: as published.
        folder: with README.md and data/.
        minutes: on two cores.
        solve: from a seed, whatever all its models share: fits, samples, prices.
        figures: by name, drawn where a folder for figures is given.
        missed_bars: a line for each error that is larger than a reproduction may have.
    """

    name: str
    title: str
    folder: Path
    minutes: float
    tables: tuple[PrintedTable, ...]
    solve: Callable[[int], Any] = lambda seed: None
    details: tuple[Detail, ...] = ()
    figures: Mapping[str, Callable[[Outcome], Figure | None]] = dataclasses.field(default_factory=dict)
    missed_bars: Callable[[Outcome], list[str]] = lambda outcome: []

    def cells(self, table: PrintedTable) -> list[PrintedCell]:
        """All numeric cells of a table, in the order of its CSV."""
        path = self.folder / "data" / f"{self.name}_{table.source or table.name}.csv"
        return [cell for cell in printed_cells(path) if table.where(cell)]
