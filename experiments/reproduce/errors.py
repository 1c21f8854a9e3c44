"""Relative errors, their spread, and the simplest predictors that a model has to beat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.reproduce.paper import STATUSES, ComparedCell, MakePredictor, Predictor

__all__ = ["beats", "constant", "each", "predictions", "relative_error", "spread_by_status", "spread_of"]


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
        medians = {g: float(np.median([r["paper_value"] for r in rows if group(r) == g])) for g in map(group, rows)}
        return lambda row: medians.get(group(row))

    return fit


def predictions(fit: MakePredictor, rows: Sequence[ComparedCell]) -> list[tuple[ComparedCell, float]]:
    """Rows with their predicted values, as far as the predictor has one without having seen the row: else it repeats it."""
    predict = fit(rows)
    said = [(row, value) for row in rows if (value := predict(row)) is not None]
    return [(row, value) for row, value in said if fit([other for other in rows if other is not row])(row) is not None]
