"""Fit one table: eight numbers per weight format, errors of held-out shapes, and the entry for the catalog."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hwmodels.analysis.calibration.attention import decoding_rows, fit_attention
from hwmodels.analysis.calibration.gemm import GemmFit, baselines, coefficients, fit_gemm, from_memory
from hwmodels.analysis.calibration.kernel_tables import (
    DataSheet,
    GemmTable,
    KernelTableError,
    TableName,
    attention_table,
    data_sheet,
    gemm_table,
)
from hwmodels.analysis.calibration.report import CalibrationReport, error_by_range, relative_error
from hwmodels.analysis.calibration.splits import half_of_shapes, largest_held_out

#: Files of the catalog: name -> (system, attention's engine/version, {format: engine/version}).
CATALOG: dict[str, tuple[str, str, dict[str, str]]] = {
    "a100-sxm": (
        "a100_sxm",
        "trtllm/1.0.0",
        {"bfloat16": "trtllm/1.0.0", "int8_wo": "trtllm/1.0.0", "int4_wo": "trtllm/1.0.0"},
    ),
    "h100-sxm": (
        "h100_sxm",
        "trtllm/1.3.0rc20",
        {"bfloat16": "trtllm/1.3.0rc20", "int8_wo": "sglang/0.5.6.post2"},
    ),
    "h200-sxm": ("h200_sxm", "trtllm/1.3.0rc20", {"bfloat16": "trtllm/1.3.0rc20"}),
    "l40s": ("l40s", "trtllm/1.3.0rc20", {"bfloat16": "trtllm/1.3.0rc20"}),
}

_SPLIT_SEEDS = (0, 1)


@dataclasses.dataclass(frozen=True)
class Refit:
    """One format of one table: fitted to all rows (`fit`), and judged by what was held out of other fits (`report`)."""

    table: TableName
    weight_format: str
    rows: GemmTable
    sheet: DataSheet
    fit: GemmFit
    report: CalibrationReport
    half_errors: tuple[float, ...]  # mean error of the other half of the shapes, one per split and half
    held_out: Any  # rows held out of the fit whose predictions `predicted_held_out` are
    predicted_s: Any  # of that fit

    def record(self) -> dict[str, Any]:
        """The format's part of a catalog file, and of the JSON."""
        plain = self.report.to_dict()
        fitted = self.fit.fit
        return {
            "status": "calibrated",
            "table": f"aiconfigurator-core {self.table}",
            "split": "all shapes; errors: half of the (k, n) shapes by hash, seeds 0 and 1, and the largest k and n held out",
            "weight_bits": self.rows.weight_bits,
            "rows": len(self.rows.m),
            "held_out_halves": list(self.half_errors),
            "at_bound": list(fitted.at_bound),
            "scatter": fitted.scatter,
            "coefficients": {k: float(v) for k, v in vars(coefficients(fitted.estimates)).items()},
            **{name: plain[name] for name in ("standard_errors", "errors", "by_range", "baselines", "notes")},
        }


def refit(
    table: TableName,
    weight_format: str,
    *,
    multiprocessors: float | None = None,
    root: str | Path | None = None,
    advance: Callable[[str], None] = lambda note: None,
) -> Refit:
    """Fit to all shapes, then to halves of them and to all but the largest.

    Args:
        advance: called after each of the six fits.
    Raises:
        KernelTableError: the table or the data sheet cannot be read, or has too few rows to fit to.
    """
    rows, sheet = (
        gemm_table(table, weight_format, root=root),
        data_sheet(table.system, multiprocessors=multiprocessors, root=root),
    )
    streamed = from_memory(rows, sheet)

    def fitted(train: Any) -> GemmFit:
        try:
            result = fit_gemm(rows, sheet, train)
        except ValueError as error:
            raise KernelTableError(f"{table} {weight_format} cannot be fitted: {error}") from error
        advance(f"{table.system} {weight_format}")
        return result

    whole = fitted(streamed)
    halves, first = [], None
    for seed in _SPLIT_SEEDS:
        for complement in (False, True):
            train = half_of_shapes(rows.k, rows.n, seed=seed, complement=complement)
            predicted, test = fitted(train).predicted_s, ~train & streamed
            halves.append(relative_error(predicted[test], rows.seconds[test]).mean)
            first = first or (train, predicted)
    train, predicted = first or (streamed, whole.predicted_s)
    test = ~train & streamed
    within = largest_held_out(rows.k, rows.n)
    beyond, large = fitted(within).predicted_s, ~within & streamed
    error = lambda values, chosen: relative_error(values[chosen], rows.seconds[chosen])
    left_out = int((~streamed).sum())
    notes = [
        f"Mean error over the four held-out halves: {np.mean(halves):.2%} ({min(halves):.2%} to {max(halves):.2%})."
    ]
    if left_out:
        shapes = len(set(zip(rows.k[~streamed], rows.n[~streamed])))
        notes.append(
            f"{left_out} rows of {shapes} shapes are left out: some were faster than the bandwidth allows, from a cache. "
            f"Mean error with them, fitted without: {error(whole.predicted_s, streamed | True).mean:.2%}."
        )
    report = CalibrationReport(
        title=f"{table} {weight_format}",
        estimates=whole.fit.estimates,
        standard_errors=whole.fit.standard_errors,
        errors={
            "all shapes fitted": error(whole.predicted_s, streamed),
            "half of the shapes, fitted": error(predicted, train & streamed),
            "half of the shapes, held out": error(predicted, test),
            "largest k and n held out": error(beyond, large),
        },
        by_range=error_by_range(rows.m[test], predicted[test], rows.seconds[test]),
        baselines={name: error(values, test) for name, values in baselines(rows, sheet, train).items()},
        notes=notes,
    )
    return Refit(table, weight_format, rows, sheet, whole, report, tuple(halves), ~train, predicted)


def attention_record(
    table: TableName, *, multiprocessors: float | None = None, root: str | Path | None = None
) -> dict[str, Any]:
    """Decoding attention fitted with batches 5 and 16 and contexts of 1024 held out: the catalog's part and the errors."""
    sheet, rows = (
        data_sheet(table.system, multiprocessors=multiprocessors, root=root),
        attention_table(table, root=root),
    )
    held_out = np.isin(rows.batch, (5, 16)) | np.isin(rows.context_tokens, (1024,))
    used = decoding_rows(rows, sheet)
    try:
        fitted = fit_attention(rows, sheet, ~held_out)
    except ValueError as error:
        raise KernelTableError(f"{table} attention cannot be fitted: {error}") from error
    error = lambda chosen: dataclasses.asdict(relative_error(fitted.predicted_s[chosen], rows.seconds[chosen]))
    known = {n: e for n, e in fitted.fit.standard_errors.items() if not math.isnan(e)}
    return {
        "status": "calibrated",
        "table": f"aiconfigurator-core {table}",
        "split": "batches 5 and 16 and contexts of 1024 tokens held out",
        "coefficients": dict(fitted.fit.estimates),
        "standard_errors": known,
        "errors": {"fitted": error(used & ~held_out), "held out": error(used & held_out)},
    }


def catalog_entry(
    title: str, refits: Sequence[Refit], attention: dict[str, Any] | None, experts: dict[str, Any]
) -> dict[str, Any]:
    """A whole catalog file as nested dictionaries; `experts`: format -> its record."""
    entry: dict[str, Any] = {
        "title": title,
        "written_by": "python -m experiments.silicon; do not edit",
        "data_sheet": dataclasses.asdict(refits[0].sheet),
        "formats": {refit.weight_format: refit.record() for refit in refits},
    }
    entry |= {"experts": experts} if experts else {}
    return entry | ({"attention": attention} if attention else {})
