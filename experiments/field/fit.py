"""Engines' terms from few measured rows, and how far predictions scatter about measurements."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import nnls

from experiments.field.predict import Parts, predict
from experiments.field.rows import FieldRow
from hwmodels.speculation.engine_terms import EngineTerms

__all__ = [
    "CALIBRATION_CELLS",
    "FITTED_TERMS",
    "calibration_rows",
    "errors_of_unseen",
    "fit_terms",
]

#: Engine -> source and kind of draft -> rows that its terms are fitted to, all on H100s and H200s. Of vLLM most are of the only
#: source with many numbers of sequences; two of each kind of head say what it spends beside a network. Of SGLang most are of
#: the source with several trees and numbers of sequences; one each of other machines, whose hosts differ.
CALIBRATION_CELLS = {
    "vllm": {
        ("github.com/tomasruizt/vllm-scripts", "separate_model"): 16,
        ("github.com/vllm-project/vllm", "EAGLE-1 head (chain)"): 2,
        ("github.com/vllm-project/vllm", "EAGLE-3 head (chain)"): 2,
    },
    "sglang": {
        ("github.com/gpustack/gpustack", "EAGLE-3 head (tree)"): 4,
        ("github.com/gpustack/gpustack", "EAGLE-3 head (chain)"): 1,
        ("github.com/Tencent/AngelSlim", "EAGLE-3 head (tree)"): 1,
        ("github.com/sgl-project/SpecForge", "EAGLE-3 head (tree)"): 1,
        ("huggingface.co/thoughtworks/GLM-4.7-Flash-Eagle3", "EAGLE-3 head (tree)"): 1,
    },
}

#: Terms that are fitted. Of vLLM what a pass adds is 0: kernels of a network's pass hide what the host does meanwhile. Rows of
#: SGLang are of one kind of head alone, which tells a pass from a cycle, and not a layer or a map from a pass.
FITTED_TERMS = {
    "vllm": ("cycle_s", "drafted_token_s", "prompt_token_s", "draft_layer_s", "mapped_pass_s"),
    "sglang": ("cycle_s", "draft_pass_s", "drafted_token_s"),
}

#: GPUs of the rows that are fitted to.
_FITTED_ON = re.compile(r"\bH[12]00\b")

Cell = tuple[FieldRow, Parts]


def calibration_rows(rows: Sequence[FieldRow], engine: str) -> set[str]:
    """Ids of the rows to fit an engine's terms to: the first of each source and kind by SHA-256 of their ids, so that nobody
    chose them."""
    chosen: set[str] = set()
    for kind, count in CALIBRATION_CELLS[engine].items():
        held = [
            row.id
            for row in rows
            if (row.source, row.draft_kind) == kind and _FITTED_ON.search(row.device) and not row.excluded
        ]
        chosen |= set(sorted(held, key=lambda name: hashlib.sha256(name.encode()).hexdigest())[:count])
    return chosen


def fit_terms(cells: Sequence[Cell], engine: str) -> EngineTerms:
    """Terms, none below 0, with least squares of the relative errors of cycles and of steps without speculation."""
    fitted = np.array([field.name in FITTED_TERMS[engine] for field in dataclasses.fields(EngineTerms)])
    counts, missing = [], []
    for row, parts in cells:
        for measured, kernels, spent in (
            (row.cycle_s, parts.cycle_s, parts.cycle_counts),
            (row.ar_s, parts.ar_s, parts.ar_counts),
        ):
            if measured is not None:
                counts.append(spent / measured)
                missing.append((measured - kernels) / measured)
    table = np.array(counts) * fitted
    # Columns of like size: seconds per cycle and per token differ by orders of magnitude.
    sizes = np.maximum(np.abs(table).max(axis=0), 1e-30)
    found, _ = nnls(table / sizes, np.array(missing))
    return EngineTerms(*(float(value) for value in found / sizes))


def errors_of_unseen(
    cells: Sequence[Cell], others: Sequence[Cell], engine: str, part: Callable[[FieldRow], str]
) -> dict[str, float]:
    """Part of the rows -> root mean square of log speedup errors, by terms fitted to cells of other parts.

    Args:
        cells: that terms are fitted to.
        others: that are predicted, with speedups.
        part: of a row, such as its kind of draft.
    """
    found = {}
    for kind in sorted({part(row) for row, _ in others}):
        terms = fit_terms([cell for cell in cells if part(cell[0]) != kind], engine)
        held = [cell for cell in others if part(cell[0]) == kind]
        errors = [np.log(predict(row, parts, terms).speedup / row.speedup) for row, parts in held if row.speedup]
        found[kind] = float(np.sqrt(np.mean(np.square(errors))))
    return found


def rounded(terms: EngineTerms) -> EngineTerms:
    """Terms with the digits that a catalog file holds."""
    return EngineTerms(*(float(f"{value:.4g}") for value in dataclasses.astuple(terms)))
