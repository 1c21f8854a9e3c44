"""What every reproduction of a paper's tables has in common: rows, errors split by status, simplest predictors, printing.

A row is one printed cell beside the model's value. Its status says what the comparison is worth: `predicted` (no number was
fitted to the table), `calibrated` (numbers were fitted to this cell, or it equals such a cell by construction), `input` (the
printed value itself went in).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from jaxspec.report.terminal import Table

__all__ = [
    "STATUSES",
    "beats",
    "constant_errors",
    "predictor_errors",
    "printed_cells",
    "show_summary",
    "show_tables",
    "spread_by_metric",
    "spread_by_status",
    "spread_of",
    "table_row",
]

STATUSES = ("input", "calibrated", "predicted")

Row = Mapping[str, Any]


def printed_cells(path: Path) -> list[dict[str, str]]:
    """Rows of a table of printed values, as text; comments in a paper's source (`status` other than printed) left out."""
    with path.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row.get("status", "printed") == "printed"]


def table_row(
    paper: str,
    table: str,
    conditions: Mapping[str, Any],
    *,
    metric: str,
    unit: str,
    paper_value: float,
    model_value: float,
    status: str,
    note: str = "",
) -> dict[str, Any]:
    """One printed cell beside the model's value; the error is relative to the printed one, which must not be 0."""
    return {
        "paper": paper,
        "table": table,
        "conditions": dict(conditions),
        "metric": metric,
        "unit": unit,
        "paper_value": paper_value,
        "model_value": model_value,
        "relative_error": abs(model_value - paper_value) / abs(paper_value),
        "status": status,
        "note": note,
    }


def spread_of(errors: Sequence[float]) -> dict[str, float]:
    """Number, median and largest of some errors, of which there is one or more."""
    return {"cells": len(errors), "median": float(np.median(errors)), "max": float(np.max(errors))}


def spread_by_status(rows: Iterable[Row]) -> dict[str, dict[str, float]]:
    """Spread of the relative errors of each status that occurs."""
    rows = list(rows)
    errors = {status: [row["relative_error"] for row in rows if row["status"] == status] for status in STATUSES}
    return {status: spread_of(some) for status, some in errors.items() if some}


def spread_by_metric(rows: Iterable[Row]) -> dict[str, dict[str, float]]:
    """Spread of the relative errors of each metric, cells that are only repeated (input) left out.

    One metric's error says nothing of another's: a throughput may be right at a length that is far off.
    """
    rows = [row for row in rows if row["status"] != "input"]
    metrics = dict.fromkeys(row["metric"] for row in rows)
    return {metric: spread_of([row["relative_error"] for row in rows if row["metric"] == metric]) for metric in metrics}


def predictor_errors(rows: Iterable[Row], predict: Callable[[Row], float]) -> list[float]:
    """Relative errors of another predictor on the same cells."""
    return [abs(predict(row) / row["paper_value"] - 1) for row in rows]


def constant_errors(rows: Sequence[Row], *keys: str) -> list[float]:
    """Errors of the median of the paper's own cells, one for each metric (and value of further conditions)."""
    group = lambda row: (row["metric"], *(row["conditions"][key] for key in keys))
    medians = {g: np.median([r["paper_value"] for r in rows if group(r) == g]) for g in {group(row) for row in rows}}
    return [abs(medians[group(row)] - row["paper_value"]) / row["paper_value"] for row in rows]


def beats(ours: Mapping[str, float], peer: Mapping[str, float]) -> bool:
    """Whether both median and largest error are below another predictor's."""
    return all(ours[key] < peer[key] for key in ("median", "max"))


def show_tables(
    console: Console,
    result: Mapping[str, Any],
    *,
    label: Callable[[Row], str],
    paper_format: str = ".2f",
    model_format: str = ".3f",
    title: str = "{covered} of {cells} cells",
    agrees: str = "reproduced",
) -> None:
    """All rows of a result, a table for each entry of its summary, and what the summary says.

    Args:
        result: "rows", and "summary" by "paper/table".
        label: a row's conditions in a few words.
        paper_format, model_format: of the printed and of the model's values.
        title: filled from the summary.
        agrees: what is said of a table that the model beats all simple predictors on.
    """
    for key, summary in result["summary"].items():
        paper, name = key.split("/")
        table = Table(title=f"{paper} {name}: {title.format(**summary)}")
        for column in ("cell", "metric", "paper", "model", "error", "status", "note"):
            table.add_column(column, justify="right" if column in ("paper", "model", "error") else "left")
        for row in result["rows"]:
            if (row["paper"], row["table"]) == (paper, name):
                numbers = (
                    f"{row['paper_value']:{paper_format}}",
                    f"{row['model_value']:{model_format}}",
                    f"{row['relative_error']:.2%}",
                )
                table.add_row(label(row), row["metric"], *numbers, row["status"], row["note"])
        console.print(table)
        show_summary(console, summary, agrees=agrees)


def show_summary(console: Console, summary: Mapping[str, Any], *, agrees: str = "reproduced") -> None:
    """Errors by status, of what is compared, and of the simplest predictors; the verdict; fitted numbers."""
    spread = lambda errors: f"median {errors['median']:.2%}, max {errors['max']:.2%} ({errors['cells']} cells)"
    for status, errors in summary["relative_error"].items():
        console.print(f"  {status}: {spread(errors)}{': no prediction' if status == 'input' else ''}")
    if len(summary.get("by_metric", {})) > 1:
        for metric, errors in summary["by_metric"].items():
            console.print(f"  {metric}: {spread(errors)}")
    if "compared" in summary:
        rounded = summary["compared"].get("rounded")
        words = "" if rounded is None else f", {rounded} round to what is printed"
        console.print(f"  compared: {spread(summary['compared'])}{words}")
    for predictor, errors in summary["simplest_predictors"].items():
        console.print(f"  instead, {predictor}: {spread(errors)}")
    verdict = agrees
    if not summary.get("tested", True):
        verdict = "no test: as many fitted numbers as cells"
    elif not summary["beats_simplest"]:
        verdict = "NOT reproduced: a simpler predictor is as good"
    fitted = ", ".join(f"{number} = {value:.4g}" for number, value in summary["fitted"].items()) or "nothing"
    console.print(f"  {verdict}; fitted: {fitted}\n")
