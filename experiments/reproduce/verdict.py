"""A table's summary: errors split by status, fitted numbers, the simplest predictors on the same cells, and the verdict.

The rule: a metric of a table is reproduced if the model's predicted cells have a smaller median error *and* a smaller largest
error than each of the simplest predictors on the same cells. A table is reproduced if each of its predicted metrics is, and
there is one. Calibrated and input cells never count; cells in doubt do not either, nor does a predictor that repeats a cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.reproduce.errors import beats, predictions, relative_error, spread_by_status, spread_of
from experiments.reproduce.paper import STATUSES, ComparedCell, PrintedTable

__all__ = ["compare", "summarise"]


def compare(table: PrintedTable, rows: Sequence[ComparedCell]) -> dict[str, dict[str, Any]]:
    """By name of the simplest predictors: their errors, and "model", the model's on the same cells."""
    found = {}
    for name, fit in table.simplest.items():
        said = predictions(fit, rows)
        if said:
            peer = spread_of([relative_error(value, row["paper_value"]) for row, value in said])
            ours = spread_of([row["relative_error"] for row, _ in said])
            found[name] = {**peer, "model": ours, "beaten": beats(ours, peer)}
    return found


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
        "simplest_predictors": {status: found for status, found in peers.items() if found},
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
    tested = [metric for metric, found in metrics.items() if found["judged"]]
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
    tested = {metric: found for metric, found in metrics.items() if found["judged"]}
    if not tested:
        return f"NOT reproduced: no cell is predicted{f', {doubtful} are in doubt' if doubtful else ''}"
    beaten = [metric for metric, found in tested.items() if found["reproduced"]]
    lost = {metric: found["unbeaten"] for metric, found in tested.items() if not found["reproduced"]}
    words = "reproduced" if reproduced else "NOT reproduced"
    if lost:
        words += ": a simpler predictor is as good for " + "; ".join(
            f"{metric} ({', '.join(names) or 'none is given'})" for metric, names in lost.items()
        )
        words += f"; reproduced: {', '.join(beaten)}" if beaten else ""
    return words + (f"; {doubtful} cells in doubt left out" if doubtful else "")
