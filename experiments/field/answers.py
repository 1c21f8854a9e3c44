"""A prediction for each row, in the form that is written: times, speedup, 90 % interval, status, or why there is none."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.field.fit import calibration_rows, fit_terms, leave_one_out, rounded
from experiments.field.predict import Parts, predict
from experiments.field.rows import FieldRow
from hwmodels.speculation.engine_terms import EngineTerms

__all__ = ["SPREAD", "answers", "fitted", "spread_of"]

#: Scatter of predictions about measurements by kind of draft, written with the terms by `--fit`.
SPREAD = Path(__file__).with_name("spread.json")

#: Standard errors on either side of a 90 % interval.
_NINETY = 1.6449


def fitted(rows: Sequence[FieldRow], parts: Sequence[Parts | str]) -> tuple[EngineTerms, dict[str, Any]]:
    """Terms of the engine, and what stands in `SPREAD`."""
    chosen = calibration_rows(rows)
    cells = [(row, part) for row, part in zip(rows, parts, strict=True) if row.id in chosen and isinstance(part, Parts)]
    terms = rounded(fit_terms(cells))
    spread = {"small network": float(np.sqrt(np.mean(leave_one_out(cells) ** 2)))}
    others = [
        (row, part)
        for row, part in zip(rows, parts, strict=True)
        if isinstance(part, Parts) and row.speedup and _kind(row) != "small network"
    ]
    # Root mean square: other sources lie beside the fit, not only about it.
    errors = [math.log(predict(row, part, terms).speedup / row.speedup) for row, part in others if row.speedup]
    spread["other drafts"] = float(np.sqrt(np.mean(np.square(errors)))) if errors else float("nan")
    return terms, {"calibration_rows": sorted(chosen), "log_speedup_spread": spread}


def spread_of(row: FieldRow, held: Mapping[str, Any]) -> tuple[float, bool]:
    """Standard deviation of a row's log speedup about its prediction, and whether the terms were fitted to the row.

    Args:
        held: what stands in `SPREAD`.
    """
    return held["log_speedup_spread"][_kind(row)], row.id in held["calibration_rows"]


def answers(rows: Sequence[FieldRow], parts: Sequence[Parts | str], terms: EngineTerms) -> list[dict[str, Any]]:
    """One record per row, keys of the contract: id, predicted times and speedup, interval, `why_not`; and what was measured."""
    held = json.loads(SPREAD.read_text(encoding="utf-8"))
    return [_answer(row, part, terms, held) for row, part in zip(rows, parts, strict=True)]


def _answer(row: FieldRow, parts: Parts | str, terms: EngineTerms, held: Mapping[str, Any]) -> dict[str, Any]:
    measured = {"measured_speedup": row.speedup, "measured_cycle_s": row.cycle_s, "measured_ar_s": row.ar_s}
    about = {
        "id": row.id,
        "source": row.source,
        "draft_kind": row.draft_kind,
        "excluded": row.excluded,
        "tokens_per_cycle": row.tokens_per_cycle,
    } | measured
    if isinstance(parts, str):
        names = ("predicted_speedup", "predicted_cycle_s", "predicted_ar_s", "low", "high", "device", "bandwidth_scale")
        return about | dict.fromkeys(names) | {"why_not": parts, "status": None}
    found, (spread, calibrated) = predict(row, parts, terms), spread_of(row, held)
    factor = math.exp(_NINETY * spread)
    return about | {
        "predicted_speedup": found.speedup,
        "predicted_cycle_s": found.cycle_s,
        "predicted_ar_s": found.ar_s,
        "low": found.speedup / factor,
        "high": found.speedup * factor,
        "device": parts.device,
        "bandwidth_scale": parts.bandwidth_scale,
        "why_not": None,
        "status": "calibrated" if calibrated else "predicted",
    }


def _kind(row: FieldRow) -> str:
    return "small network" if "model" in row.draft_kind.lower() else "other drafts"
