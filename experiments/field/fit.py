"""An engine's terms from few measured rows, and how far predictions scatter about measurements."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls

from experiments.field.predict import Parts, predict
from experiments.field.rows import FieldRow
from hwmodels.speculation.engine_terms import EngineTerms

__all__ = ["CALIBRATION_CELLS", "calibration_rows", "fit_terms", "leave_one_out"]

#: Rows that the terms are fitted to, at most.
CALIBRATION_CELLS = 20

#: Whose rows they are chosen from: the only source with many draft lengths and numbers of sequences.
CALIBRATION_SOURCE = "github.com/tomasruizt/vllm-scripts"

Cell = tuple[FieldRow, Parts]


def calibration_rows(rows: Sequence[FieldRow]) -> set[str]:
    """Ids of the rows to fit to: the first of the source by SHA-256 of their ids, so that nobody chose them."""
    candidates = [row.id for row in rows if row.source == CALIBRATION_SOURCE and not row.excluded]
    return set(sorted(candidates, key=lambda name: hashlib.sha256(name.encode()).hexdigest())[:CALIBRATION_CELLS])


def fit_terms(cells: Sequence[Cell]) -> EngineTerms:
    """Terms, none below 0, with least squares of the relative errors of cycles and of steps without speculation."""
    counts, missing = [], []
    for row, parts in cells:
        for measured, kernels, spent in (
            (row.cycle_s, parts.cycle_s, parts.cycle_counts),
            (row.ar_s, parts.ar_s, parts.ar_counts),
        ):
            if measured is not None:
                counts.append(spent / measured)
                missing.append((measured - kernels) / measured)
    table = np.array(counts)
    # Columns of like size: seconds per cycle and per token differ by orders of magnitude.
    sizes = np.maximum(np.abs(table).max(axis=0), 1e-30)
    found, _ = nnls(table / sizes, np.array(missing))
    return EngineTerms(*(float(value) for value in found / sizes))


def leave_one_out(cells: Sequence[Cell]) -> np.ndarray:
    """Errors of log speedups, "cell", each by terms that were fitted to the others."""
    errors = []
    for index, (row, parts) in enumerate(cells):
        others = [cell for other, cell in enumerate(cells) if other != index]
        assert row.speedup is not None
        errors.append(np.log(predict(row, parts, fit_terms(others)).speedup / row.speedup))
    return np.array(errors)


def rounded(terms: EngineTerms) -> EngineTerms:
    """Terms with the digits that a catalog file holds."""
    return EngineTerms(*(float(f"{value:.4g}") for value in dataclasses.astuple(terms)))
