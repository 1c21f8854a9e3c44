"""Papers found by their folders, and run: rows, summaries and details of each."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import experiments.papers
from experiments.reproduce.paper import (
    STATUSES,
    Choice,
    ComparedCell,
    Modelled,
    Outcome,
    Paper,
    PrintedCell,
    PrintedTable,
    beats,
    predictions,
    relative_error,
    spread_by_status,
    spread_of,
)
from jaxspec.errors import InputError
from jaxspec.partial_files import PartialFiles
from jaxspec.report.figure_style import BLUE, INK, ORANGE, SKY, VERMILLION, new_figure, styled

if TYPE_CHECKING:
    from jaxspec.runs.progress import Reporter

__all__ = [
    "compare",
    "error_figure",
    "find_paper",
    "paper_names",
    "reproduce",
    "run_paper",
    "summarise",
    "table_rows",
    "write_figures",
]


def compare(table: PrintedTable, rows: Sequence[ComparedCell]) -> dict[str, dict[str, Any]]:
    """By name of the simplest predictors: their errors, and "model", the model's on the same cells."""
    compared = {}
    for name, fit in table.simplest.items():
        said = predictions(fit, rows)
        if said:
            peer = spread_of([relative_error(value, row["paper_value"]) for row, value in said])
            ours = spread_of([row["relative_error"] for row, _ in said])
            compared[name] = {**peer, "model": ours, "beaten": beats(ours, peer)}
    return compared


def _certain(rows: Sequence[ComparedCell], status: str) -> list[ComparedCell]:
    """Rows of a status, without cells in doubt."""
    return [row for row in rows if row["status"] == status and not row["doubt"]]


def _of_metric(table: PrintedTable, rows: Sequence[ComparedCell]) -> dict[str, Any]:
    judged = _certain(rows, "predicted")
    peers = {status: compare(table, _certain(rows, status)) for status in STATUSES}
    unbeaten = [name for name, peer in peers["predicted"].items() if not peer["beaten"]]
    # Each judged cell needs a predictor to be compared with.
    compared = {id(row) for fit in table.simplest.values() for row, _ in predictions(fit, judged)}
    return {
        "relative_error": spread_by_status(rows),
        "judged": spread_of([row["relative_error"] for row in judged]) if judged else None,
        "simplest_predictors": {status: peer for status, peer in peers.items() if peer},
        "unbeaten": unbeaten,
        "reproduced": bool(judged) and not unbeaten and len(compared) == len(judged),
    }


def summarise(
    table: PrintedTable, rows: Sequence[ComparedCell], *, cells: int, fitted: dict[str, float]
) -> dict[str, Any]:
    """The summary of one table's rows.

    Args:
        cells: numeric cells of the printed table, covered or not.
        fitted: the fitted numbers.
    """
    metrics = {
        metric: _of_metric(table, [row for row in rows if row["metric"] == metric])
        for metric in dict.fromkeys(row["metric"] for row in rows)
    }
    judged, doubtful = _certain(rows, "predicted"), [row for row in rows if row["doubt"]]
    tested = [metric for metric, entry in metrics.items() if entry["judged"]]
    reproduced = bool(tested) and all(metrics[metric]["reproduced"] for metric in tested)
    return {
        "title": table.title,
        "cells": cells,
        "covered": len(rows),
        "relative_error": spread_by_status(rows),
        "in_doubt": spread_of([row["relative_error"] for row in doubtful]) if doubtful else None,
        "judged": spread_of([row["relative_error"] for row in judged]) if judged else None,
        # On the cells that the verdict is about; where there are none, on those that are fitted or repeated.
        "simplest_predictors": compare(table, judged or _certain(rows, "calibrated") or _certain(rows, "input")),
        "by_metric": metrics,
        "fitted": fitted,
        "fitted_to": table.fitted_to,
        "choices": [choice.in_words() for choice in table.choices],
        "doubts": list(table.doubts),
        "reproduced": reproduced,
        "verdict": _words(metrics, reproduced, len(doubtful)),
    }


def _words(metrics: dict[str, dict[str, Any]], reproduced: bool, doubtful: int) -> str:
    tested = {metric: entry for metric, entry in metrics.items() if entry["judged"]}
    if not tested:
        return f"NOT reproduced: no cell is predicted{f', {doubtful} are in doubt' if doubtful else ''}"
    beaten = [metric for metric, entry in tested.items() if entry["reproduced"]]
    lost = {metric: entry["unbeaten"] for metric, entry in tested.items() if not entry["reproduced"]}
    words = "reproduced" if reproduced else "NOT reproduced"
    if lost:
        words += ": a simpler predictor is as good for " + "; ".join(
            f"{metric} ({', '.join(names) or 'none is given'})" for metric, names in lost.items()
        )
        words += f"; reproduced: {', '.join(beaten)}" if beaten else ""
    return words + (f"; {doubtful} cells in doubt left out" if doubtful else "")


_COLOURS = {"input": SKY, "calibrated": ORANGE, "predicted": BLUE}

#: Errors below this share lie on a linear scale, those above on a logarithmic one.
_LINEAR = 0.01

#: Repeated values may be off by what single precision loses.
_ROUNDING = 1e-6

#: Ends of the scale. A cell that is further off is drawn at the end.
_FURTHEST = 5.0


def write_figures(paper: Paper, outcome: Outcome, folder: Path) -> None:
    """All figures of a paper as `<paper>_<name>.png`, all or none.

    Raises:
        InputError: nothing can be written there.
    """
    drawn = {"errors": error_figure(paper, outcome)} | {name: draw(outcome) for name, draw in paper.figures.items()}
    try:
        with PartialFiles() as files:
            for name, figure in drawn.items():
                if figure is not None:
                    figure.savefig(files.add(folder / f"{paper.name}_{name}.png"), dpi=150, format="png")
            files.commit()
    except OSError as error:
        raise InputError(f"no figure can be written to {folder} ({error.strerror}); name another folder") from error


@styled
def error_figure(paper: Paper, outcome: Outcome) -> Figure | None:
    """Signed relative errors, a line for each metric of each table that is more than repeated; None without a line."""
    lines = [
        (table.name, metric, [row for row in outcome.of(table.name) if row["metric"] == metric])
        for table in paper.tables
        for metric, entry in outcome.summary[table.name]["by_metric"].items()
        if not _only_repeats(entry["relative_error"])
    ]
    if not lines:
        return None
    figure = new_figure(
        f"Errors by table and metric: {paper.name}",
        "Model over printed value, less 1. Each mark is a cell; hollow marks are cells in doubt. Bars: the range within which "
        "the best of the simplest predictors stays on the predicted cells. Linear up to 1 %, logarithmic beyond.",
        height_inches=0.9 + 0.3 * len(lines),
    )
    axes = figure.subplots()
    for height, (name, metric, rows) in enumerate(lines):
        _draw_line(axes, height, rows, outcome.summary[name]["by_metric"][metric])
    axes.axvline(0.0, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(lines)), [_short(f"{name}: {metric}") for name, metric, _ in lines], fontsize=8)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.set_xscale("symlog", linthresh=_LINEAR)
    axes.set_xlim(-1.3 * _FURTHEST, 1.3 * _FURTHEST)
    ticks = [-1.0, -0.1, -0.01, 0.0, 0.01, 0.1, 1.0]
    axes.set_xticks(ticks, [f"{tick:+.0%}" if tick else "0" for tick in ticks])
    axes.minorticks_off()
    axes.grid(True, axis="x")
    marks = [Line2D([], [], color=_COLOURS[status], marker="o", linestyle="", label=status) for status in STATUSES]
    marks.append(Line2D([], [], color=VERMILLION, linewidth=5, alpha=0.25, label="simplest predictor, largest error"))
    figure.legend(handles=marks, loc="outside lower center", ncols=4)
    return figure


def _only_repeats(errors: Mapping[str, Any]) -> bool:
    return set(errors) == {"input"} and errors["input"]["max"] < _ROUNDING


def _short(label: str, most: int = 52) -> str:
    return label if len(label) <= most else f"{label[: most - 1]}…"


def _draw_line(axes: Axes, height: int, rows: Sequence[ComparedCell], metric: dict[str, Any]) -> None:
    peers = metric["simplest_predictors"].get("predicted", {}).values()
    known = [peer["max"] for peer in peers if peer["max"] is not None]
    if known:
        end = min(min(known), _FURTHEST)
        axes.plot(
            [-min(end, 1.0), end], [height, height], color=VERMILLION, linewidth=7, alpha=0.25, solid_capstyle="butt"
        )
    known_rows = [row for row in rows if row["relative_error"] is not None]
    # Side by side, in the order of the table, so that equal errors do not hide each other.
    for place, row in zip(height + np.linspace(-0.22, 0.22, len(known_rows) + 2)[1:-1], known_rows, strict=True):
        signed = (row["model_value"] - row["paper_value"]) / abs(row["paper_value"] or 1.0)
        colour = _COLOURS[row["status"]]
        fill = "none" if row["doubt"] else colour
        axes.plot(np.clip(signed, -_FURTHEST, _FURTHEST), place, "o", color=colour, markerfacecolor=fill, markersize=3)


SCHEMA_VERSION = 1


def paper_names() -> list[str]:
    """Names of all papers: the folders in `experiments/papers`."""
    return sorted(module.name for module in pkgutil.iter_modules(experiments.papers.__path__) if module.ispkg)


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
    summary = summarise(table, rows, cells=len(paper.cells(table)), fitted=floats(table.fitted(solved)))
    cause = "" if summary["reproduced"] else table.cause
    return summary | {
        "inherits": {where: floats(numbers(solved)) for where, numbers in table.inherits.items()},
        "cause": cause if isinstance(cause, str) else cause(solved, rows),
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
            cells, summary[table.name] = _table(paper, table, solved, readings)
            rows += cells
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
            write_figures(paper, outcome, figures)
        result["papers"][paper.name] = {
            "title": paper.title,
            "details": outcome.details,
            "missed_bars": paper.missed_bars(outcome),
            "seconds": time.perf_counter() - began,
        }
    return result | {"versions": {"jax": jax.__version__, "numpy": np.__version__}}
