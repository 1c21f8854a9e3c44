"""The result on a terminal, or plain in a pipe: every cell, a summary of each table, details, and one line per table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from experiments.reproduce.paper import ComparedCell, Detail, Paper, PrintedTable
from jaxspec.report.terminal import Table, say, show

__all__ = ["show_overview", "show_paper"]


def show_paper(console: Console, paper: Paper, result: Mapping[str, Any]) -> None:
    """All rows of a paper, a table each with its summary, then its details."""
    say(f"{paper.title} ({paper.name})\n", console=console)
    for table in paper.tables:
        rows = [row for row in result["rows"] if (row["paper"], row["table"]) == (paper.name, table.name)]
        _show_table(console, table, rows, result["summary"][f"{paper.name}/{table.name}"])
    found = result["papers"][paper.name]
    for detail in paper.details:
        if detail.columns:
            _show_detail(console, detail, found["details"][detail.name])
    say("\n".join(found["missed_bars"]) or f"{paper.name}: all bars are met.", console=console)
    say("", console=console)


def show_overview(console: Console, summaries: Mapping[str, Mapping[str, Any]]) -> None:
    """One line per table: cells by status, error of what is judged, the simplest predictor's, verdict."""
    table = Table(
        title="Median (largest) relative error of predicted cells; of calibrated ones in [ ], which test nothing"
    )
    for heading in ("table", "cells", "covered", "input", "calibrated", "predicted", "model", "simplest predictor"):
        table.add_column(heading, justify="left" if heading == "table" else "right")
    table.add_column("verdict")
    for name, summary in summaries.items():
        errors = summary["relative_error"]
        counts = [str(errors.get(status, {"cells": 0})["cells"]) for status in ("input", "calibrated", "predicted")]
        ours = summary["judged"]
        words = _short(ours) if ours else f"[{_short(errors['calibrated'])}]" if "calibrated" in errors else ""
        peers = summary["simplest_predictors"].values()
        peer = min(peers, key=lambda peer: (peer["median"] is None, peer["median"]), default=None)
        table.add_row(
            name, str(summary["cells"]), str(summary["covered"]), *counts, words, _short(peer), summary["verdict"]
        )
    show(table, console=console)


def _show_table(
    console: Console, declared: PrintedTable, rows: Sequence[ComparedCell], summary: Mapping[str, Any]
) -> None:
    table = Table(title=f"{declared.title}: {summary['covered']} of {summary['cells']} cells")
    for heading in ("cell", "metric", "paper", "model", "error", "status", "note"):
        table.add_column(heading, justify="right" if heading in ("paper", "model", "error") else "left")
    for row in rows:
        label = ", ".join(row["conditions"][key] for key in declared.label if key in row["conditions"])
        error = "" if row["relative_error"] is None else f"{row['relative_error']:.2%}"
        note = "; ".join(text for text in (row["doubt"] and f"in doubt: {row['doubt']}", row["note"]) if text)
        numbers = (f"{row['paper_value']:g}", f"{row['model_value']:.4g}", error)
        table.add_row(label, row["metric"], *numbers, row["status"], note)
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
    for metric, found in summary["by_metric"].items():
        for status, peers in found["simplest_predictors"].items():
            for name, peer in peers.items():
                if status == "input" and not peer["model"]["max"]:
                    continue  # printed values repeated
                lines.append(f"{metric}, {status}: model {_spread(peer['model'])}; {name} {_spread(peer)}")
    fitted = ", ".join(f"{name} = {value:.4g}" for name, value in summary["fitted"].items()) or "nothing"
    where = f", to {summary['fitted_to']}" if summary["fitted_to"] else ""
    lines.append(f"fitted: {fitted}{where}")
    lines += [f"chosen: {text}" for text in summary["choices"]]
    lines += [f"doubt: {text}" for text in summary["doubts"]]
    return [*lines, summary["verdict"]]


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
