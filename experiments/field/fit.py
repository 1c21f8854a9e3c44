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

__all__ = [
    "CALIBRATION_CELLS",
    "FITTED_TERMS",
    "calibration_rows",
    "errors_of_unseen_kinds",
    "fit_terms",
    "leave_one_out",
]

#: Source and kind of draft -> rows that the terms are fitted to, all on H100s. Most are of the only source with many numbers of
#: sequences; two of each kind of head say what it spends beside a network.
CALIBRATION_CELLS = {
    ("github.com/tomasruizt/vllm-scripts", "separate_model"): 16,
    ("github.com/vllm-project/vllm", "EAGLE-1 head (chain)"): 2,
    ("github.com/vllm-project/vllm", "EAGLE-3 head (chain)"): 2,
}

#: Terms that are fitted. What a pass adds is 0: kernels of a network's pass hide what the host does meanwhile.
FITTED_TERMS = ("cycle_s", "drafted_token_s", "prompt_token_s", "draft_layer_s", "mapped_pass_s")

_FITTED = np.array([field.name in FITTED_TERMS for field in dataclasses.fields(EngineTerms)])

Cell = tuple[FieldRow, Parts]


def calibration_rows(rows: Sequence[FieldRow]) -> set[str]:
    """Ids of the rows to fit to: the first of each source and kind by SHA-256 of their ids, so that nobody chose them."""
    chosen: set[str] = set()
    for kind, count in CALIBRATION_CELLS.items():
        held = [
            row.id for row in rows if (row.source, row.draft_kind) == kind and "H100" in row.device and not row.excluded
        ]
        chosen |= set(sorted(held, key=lambda name: hashlib.sha256(name.encode()).hexdigest())[:count])
    return chosen


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
    table = np.array(counts) * _FITTED
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


def errors_of_unseen_kinds(cells: Sequence[Cell], others: Sequence[Cell]) -> dict[str, float]:
    """Kind of draft -> root mean square of log speedup errors, by terms fitted to cells of other kinds of drafts.

    Args:
        cells: that terms are fitted to.
        others: that are predicted, with speedups.
    """
    found = {}
    for kind in sorted({row.draft_kind for row, _ in others}):
        terms = fit_terms([cell for cell in cells if cell[0].draft_kind != kind])
        held = [cell for cell in others if cell[0].draft_kind == kind]
        errors = [np.log(predict(row, parts, terms).speedup / row.speedup) for row, parts in held if row.speedup]
        found[kind] = float(np.sqrt(np.mean(np.square(errors))))
    return found


def rounded(terms: EngineTerms) -> EngineTerms:
    """Terms with the digits that a catalog file holds."""
    return EngineTerms(*(float(f"{value:.4g}") for value in dataclasses.astuple(terms)))
