"""Declaration of a paper: its tables, their models, fitted numbers, choices, doubts and simplest predictors.

A paper is a folder `experiments/papers/<name>/` with `paper.py`, which defines `PAPER`, `data/<name>_<table>.csv`, the
printed numbers, `tables.toml`, `statements.toml` and `figures.toml`, their words, and `details.toml`, how numbers beside the
tables are printed. Command line, JSON, printing, verdicts and the figure of errors are written once, in this package.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure

from jaxspec.report.figure_style import new_figure

__all__ = [
    "CAUSES",
    "STATUSES",
    "Cause",
    "Choice",
    "ComparedCell",
    "Detail",
    "MakeModel",
    "MakePredictor",
    "Modelled",
    "Outcome",
    "Paper",
    "Predictor",
    "PrintedCell",
    "PrintedTable",
    "Statement",
    "Status",
    "as_printed",
    "beats",
    "constant",
    "detail",
    "each",
    "missed_statements",
    "paper_figure",
    "predictions",
    "printed_cells",
    "printed_table",
    "printed_value",
    "relative_error",
    "spread_by_status",
    "spread_of",
    "statement",
    "statements_detail",
]


# Printed numbers: one per row of a CSV, with the conditions it holds under.

#: Columns that say what a number is, not what it holds under.
_NOT_CONDITIONS = ("metric", "quantity", "value", "value_low", "value_high", "unit", "status", "note", "section")


@dataclasses.dataclass(frozen=True)
class PrintedCell:
    """One printed number.

    Attributes:
        conditions: the filled columns that it holds under, as text.
        value: of a range, its lower end.
        note: of the CSV, where a cell contradicts another one.
    """

    metric: str
    unit: str
    value: float
    conditions: Mapping[str, str]
    note: str = ""

    def __getitem__(self, condition: str) -> str:
        return self.conditions[condition]


@functools.cache
def printed_cells(path: Path) -> tuple[PrintedCell, ...]:
    """The numbers of a CSV; text, and comments in a paper's source (`status` other than printed), left out."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("status", "printed") == "printed"]
    cells = []
    for row in rows:
        text = row.get("value") or row.get("value_low") or row.get("value_high") or ""
        try:
            value = float(text)
        except ValueError:
            continue  # a word, a date
        conditions = {key: entry for key, entry in row.items() if key not in _NOT_CONDITIONS and entry}
        cells.append(
            PrintedCell(row.get("metric") or row["quantity"], row["unit"], value, conditions, row.get("note") or "")
        )
    return tuple(cells)


def printed_value(path: Path, metric: str = "", **conditions: str) -> float:
    """The one number of a CSV that meets the conditions.

    Args:
        metric: any unless given.
    Raises:
        ValueError: none meets them, or more than one.
    """
    numbers = [
        cell.value
        for cell in printed_cells(path)
        if metric in ("", cell.metric) and all(cell.conditions.get(key) == text for key, text in conditions.items())
    ]
    if len(numbers) != 1:
        raise ValueError(
            f"{len(numbers)} numbers of {path.name} are {metric} with {conditions}; name the one that is meant"
        )
    return numbers[0]


Status = Literal["input", "calibrated", "predicted"]

#: `predicted`: no number was fitted to the cell's table. `calibrated`: numbers were fitted to the cell, or it equals such a
#: cell by construction, or a choice was made with the cell in view. `input`: the printed value itself went in, or follows
#: from printed cells or published shapes by arithmetic alone.
STATUSES: tuple[Status, ...] = ("input", "calibrated", "predicted")

#: Why a table is not reproduced. `nothing is computed`: the model reads what it prints. `not printed`: what its cells follow
#: from is not in print, or contradicts them. `missed`: the model says something else.
CAUSES = ("nothing is computed", "not printed", "missed")

#: A printed cell and the model's value, as in the JSON.
ComparedCell = Mapping[str, Any]

#: Why a table is not reproduced, with its arithmetic done: from what `Paper.solve` returned and the table's rows.
Cause = Callable[[Any, Sequence[ComparedCell]], str]

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


#: What `Paper.solve` returned -> a function of one cell; None for a cell that is not covered.
MakeModel = Callable[[Any], Callable[[PrintedCell], Modelled | None]]


@dataclasses.dataclass(frozen=True)
class Choice:
    """A reading of what a paper leaves open, or another one than it prints.

    A choice that was made with printed cells in view counts as a fitted number. Its cells are calibrated; tables whose cells
    were not in view inherit it.

    Attributes:
        name: what was to be chosen; the whole choice in words where `used` is empty.
        used: what the model has.
        printed: what the paper prints, where that is something else.
        why: what decided.
        seen: printed cells that were in view, in words; empty for a choice that was made without any.
        cells: of the table that declares it, those that were in view.
        as_printed: the table's model under the printed reading, numbers fitted anew; None where there is none. Its verdict is
            that of the model's own statuses: no choice calibrates anything.
    """

    name: str
    used: str = ""
    printed: str = ""
    why: str = ""
    seen: str = ""
    cells: Callable[[PrintedCell], bool] = lambda cell: True
    as_printed: MakeModel | None = None

    def in_words(self) -> str:
        """One line."""
        text = f"{self.name}: {self.used}" if self.used else self.name
        parts = [text, self.printed and f"printed: {self.printed}", self.why]
        return "; ".join(filter(None, [*parts, self.seen and f"by outcome, in view: {self.seen}"]))

    def calibrates(self, cell: PrintedCell) -> bool:
        """Whether it was made with the cell in view."""
        return bool(self.seen) and self.cells(cell)

    def inherited(self) -> Choice:
        """The same choice in a table whose cells were not in view."""
        return dataclasses.replace(self, why="", cells=lambda cell: False, as_printed=None)


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
        inherits: by the cells or measurements that they were fitted to, numbers that other tables or the catalog's files were
            fitted with and that enter this one.
        choices: what the paper leaves open or prints otherwise, and what was chosen.
        doubts: where the printed numbers contradict themselves, or what the comparison cannot show.
        cause: why it is not reproduced, as one of `CAUSES`, a colon, and the arithmetic that shows it, which a function
            computes; empty where it is.
        source: stem of the CSV, where it is not `name`.
        where: which of its cells belong to the table.
    """

    name: str
    title: str
    model: MakeModel
    label: tuple[str, ...]
    simplest: Mapping[str, MakePredictor]
    fitted: Callable[[Any], Mapping[str, float]] = _nothing
    fitted_to: str = ""
    inherits: Mapping[str, Callable[[Any], Mapping[str, float]]] = dataclasses.field(default_factory=dict)
    choices: tuple[Choice, ...] = ()
    doubts: tuple[str, ...] = ()
    cause: str | Cause = ""
    source: str = ""
    where: Callable[[PrintedCell], bool] = lambda cell: True


@functools.cache
def _words(path: Path) -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def printed_table(
    folder: Path,
    name: str,
    *,
    model: MakeModel,
    simplest: Mapping[str, MakePredictor],
    choices: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    inherited: Collection[str] = (),
    **fields: Any,
) -> PrintedTable:
    """A table whose words are in `tables.toml` of the paper's folder.

    Args:
        choices: by the choice's key there, its fields that are functions, or computed.
        inherited: keys of choices that were made without a view on this table's cells.
        fields: further ones of `PrintedTable`.
    """
    words = _words(folder / "tables.toml")

    def choice(entry: str) -> Choice:
        if " " in entry:
            return Choice(entry)
        made = Choice(**{"name": "", **words["choices"][entry]})
        return dataclasses.replace(made.inherited() if entry in inherited else made, **choices.get(entry, {}))

    own: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in words[name].items()
    }
    own["choices"] = tuple(map(choice, own.get("choices", ())))
    return PrintedTable(name=name, model=model, simplest=simplest, **own | fields)


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


# Relative errors, their spread, and the simplest predictors that a model has to beat.


def relative_error(value: float, paper_value: float) -> float | None:
    """Distance from the printed value over it; None where that is 0 and the other is not."""
    if paper_value == 0:
        return 0.0 if value == 0 else None
    return abs(value - paper_value) / abs(paper_value)


def spread_of(errors: Iterable[float | None]) -> dict[str, Any]:
    """Number, median and largest of some errors; those without a value are counted alone."""
    errors = list(errors)
    known = [error for error in errors if error is not None]
    return {
        "cells": len(errors),
        "median": float(np.median(known)) if known else None,
        "max": float(np.max(known)) if known else None,
    }


def spread_by_status(rows: Iterable[ComparedCell]) -> dict[str, dict[str, Any]]:
    """Spread of the relative errors of each status that occurs."""
    rows = list(rows)
    errors = {status: [row["relative_error"] for row in rows if row["status"] == status] for status in STATUSES}
    return {status: spread_of(some) for status, some in errors.items() if some}


def beats(ours: Mapping[str, Any], peer: Mapping[str, Any]) -> bool:
    """Whether both median and largest error are known and below another predictor's."""
    return all(None not in (ours[key], peer[key]) and ours[key] < peer[key] for key in ("median", "max"))


def each(predict: Predictor) -> MakePredictor:
    """A predictor that needs no other rows."""
    return lambda rows: predict


def constant(*conditions: str) -> MakePredictor:
    """The median of the printed values compared, one for each metric and value of these conditions."""
    group = lambda row: (row["metric"], *(row["conditions"].get(key) for key in conditions))

    def fit(rows: Sequence[ComparedCell]) -> Predictor:
        def predict(row: ComparedCell) -> float | None:
            same = [other["paper_value"] for other in rows if group(other) == group(row)]
            return float(np.median(same)) if same else None

        return predict

    return fit


def predictions(fit: MakePredictor, rows: Sequence[ComparedCell]) -> list[tuple[ComparedCell, float]]:
    """Rows with their predicted values, as far as the predictor has one without having seen the row: else it repeats it."""
    predict = fit(rows)
    said = [(row, value) for row in rows if (value := predict(row)) is not None]
    return [(row, value) for row, value in said if fit([other for other in rows if other is not row])(row) is not None]


# Statements of a paper's text on its figures, without a number for each mark: what the model has, and whether it holds.


@dataclasses.dataclass(frozen=True)
class Statement:
    """One statement.

    Attributes:
        where: section or figure.
        says: the statement, with the bar that it is held to where the text gives none.
        ours: what the model, or a measurement, has.
        status: "predicted", "measured", or "calibrated": a number or a choice of the model was made in its sight.
    """

    where: str
    says: str
    ours: str
    holds: bool
    status: str = "predicted"

    def entry(self) -> dict[str, Any]:
        """As in the JSON."""
        return dataclasses.asdict(self) | {"used": self.status == "calibrated"}


def detail(
    folder: Path,
    name: str,
    value: Callable[[Outcome], Any],
    entries: Callable[[Any], Iterable[Mapping[str, Any]]] = lambda value: value,
) -> Detail:
    """A detail whose title and columns are in `details.toml` of the paper's folder."""
    words = _words(folder / "details.toml")[name]
    return Detail(name, words["title"], value, words["columns"], entries)


def statement(folder: Path, key: str, ours: str, holds: Any, **numbers: Any) -> Statement:
    """A statement whose words are in `statements.toml` of the paper's folder, with these numbers in them."""
    words = _words(folder / "statements.toml")[key]
    status = words.get("status", "predicted")
    return Statement(words["where"], words["says"].format(**numbers), ours, bool(holds), status)


def paper_figure(folder: Path, name: str, /, **numbers: Any) -> Figure:
    """An empty figure whose title and subtitle are in `figures.toml` of the paper's folder, with these numbers in them."""
    words = _words(folder / "figures.toml")[name]
    title, subtitle = (words[key].format(**numbers) for key in ("title", "subtitle"))
    return new_figure(title, subtitle, height_inches=words["height_inches"])


def statements_detail(find: Callable[[Any], Iterable[Statement]]) -> Detail:
    """All statements of a paper, from what `Paper.solve` returned."""
    return Detail(
        "statements",
        "Statements of the text on its figures",
        lambda outcome: [one.entry() for one in find(outcome.solved)],
        {"where": "{where}", "statement": "{says}", "model": "{ours}", "holds": "{holds}", "status": "{status}"},
    )


def missed_statements(outcome: Outcome) -> list[str]:
    """A line for each statement that does not hold, of the details that were computed."""
    return [
        f"does not hold: {one['says']} ({one['where']}): {one['ours']}"
        for one in outcome.details.get("statements", ())
        if not one["holds"]
    ]
