"""Terms of this package as an engine, fitted to a few of the timed ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import nnls

from experiments.host_speedups.configurations import DRAFTS
from hwmodels.speculation.engine_terms import EngineTerms

__all__ = ["FITTED_SHAPE", "fit_terms", "fitted_rows"]

#: Chains of this length, of each draft and batch, are what terms are fitted to.
FITTED_SHAPE = "chain of 4"


def fitted_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that terms are fitted to: one per draft and batch."""
    return [row for row in rows if row["shape"] == FITTED_SHAPE and row["draft"] in DRAFTS]


def fit_terms(rows: Sequence[dict[str, Any]], spent: EngineTerms) -> EngineTerms:
    """Terms, none below 0, by least squares of the relative errors of cycles.

    Args:
        rows: predicted and timed.
        spent: the terms that are part of their predictions.
    """
    counts, missing = [], []
    for row in rows:
        measured_s, passes = row["measured_cycle_s"]["median"], 0.0 if row["draft"] == DRAFTS[0] else 1.0
        count = np.array([1.0, passes * row["draft_steps"], row["drafted_tokens"] * row["batch"]])
        kernels_s = row["predicted_cycle_s"] - count @ [spent.cycle_s, spent.draft_pass_s, spent.drafted_token_s]
        counts.append(count / measured_s)
        missing.append((measured_s - kernels_s) / measured_s)
    table = np.array(counts)
    sizes = np.maximum(np.abs(table).max(axis=0), 1e-30)  # columns of like size
    found, _ = nnls(table / sizes, np.array(missing))
    cycle_s, draft_pass_s, drafted_token_s = (float(f"{value:.4g}") for value in found / sizes)
    return EngineTerms(cycle_s=cycle_s, draft_pass_s=draft_pass_s, drafted_token_s=drafted_token_s)
