"""The paper's printed cells, those that numbers are fitted to, and their rows and summaries in a result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.papers.reproduction import (
    beats,
    printed_cells,
    spread_by_metric,
    spread_by_status,
    spread_of,
    table_row,
)

__all__ = ["CONTEXTS", "DATA", "PAPER", "SETS", "TableOne", "cells", "claim", "paper_row", "summarise", "table_one"]

PAPER = "fpga_tree_sd"

DATA = Path(__file__).parent / "data"

#: Context lengths of Table I, and its configurations beside autoregressive decoding.
CONTEXTS = (128, 512, 2048, 4096, 8192, 16384)
SETS = ("Ori set", "Naive set", "Best set")


def cells(table: str) -> list[dict[str, str]]:
    """Cells of a table, as text."""
    return printed_cells(DATA / f"{PAPER}_{table}.csv")


def claim(claim_id: str) -> dict[str, str]:
    """A number of the prose."""
    (found,) = [row for row in cells("claims") if row["claim_id"] == claim_id]
    return found


class TableOne(NamedTuple):
    """Table I as arrays over `CONTEXTS` and `SETS`."""

    lengths: np.ndarray  # "context set", tokens
    performance: np.ndarray  # "context set", tokens/s
    autoregressive: np.ndarray  # "context", tokens/s


def table_one() -> TableOne:
    """Lengths and throughputs of Table I."""
    values = {
        (int(row["context_length"]), row["method"], row["metric"]): float(row["value"])
        for row in cells("table1_llama31_8b")
    }
    over_sets = lambda metric: np.array([[values[context, name, metric] for name in SETS] for context in CONTEXTS])
    return TableOne(
        lengths=over_sets("verification_length"),
        performance=over_sets("performance"),
        autoregressive=np.array([values[context, "AR", "performance"] for context in CONTEXTS]),
    )


def paper_row(cell: Mapping[str, str], table: str, value: float, status: str, note: str = "") -> dict[str, Any]:
    """A printed cell and the model's value, which must both be numbers."""
    dropped = ("metric", "value", "unit", "note", "value_low", "value_high", "quantity", "section")
    conditions = {key: text for key, text in cell.items() if key not in dropped and text}
    return table_row(
        PAPER,
        table,
        conditions,
        metric=cell.get("metric") or cell["quantity"],
        unit=cell["unit"],
        paper_value=float(cell.get("value") or cell["value_low"]),
        model_value=float(value),
        status=status,
        note="; ".join(text for text in (note, cell.get("note", "")) if text),
    )


def summarise(
    rows: list[dict[str, Any]],
    compared: list[dict[str, Any]],
    fitted: Mapping[str, float],
    simplest: Mapping[str, list[float]],
) -> dict[str, Any]:
    """A table's summary: errors by status and by metric, of what is compared, and of the simplest predictors."""
    ours = spread_of([row["relative_error"] for row in compared])
    peers = {name: spread_of(errors) for name, errors in simplest.items()}
    return {
        "cells": len(rows),
        "covered": len(rows),
        "relative_error": spread_by_status(rows),
        "by_metric": spread_by_metric(rows),
        "compared": ours,
        "fitted": dict(fitted),
        "simplest_predictors": peers,
        "beats_simplest": all(beats(ours, peer) for peer in peers.values()),
    }
