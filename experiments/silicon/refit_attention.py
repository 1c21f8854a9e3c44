"""Fit an engine's attention: decoding by width of keys and values, then what prefill adds; parts of a catalog file."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments.silicon.refit import limited_by_blocks
from hwmodels.analysis.calibration.attention import (
    decoding_rows,
    fit_attention,
    fit_prefill,
    prefill_rows,
)
from hwmodels.analysis.calibration.attention_tables import KV_FORMAT_BITS, attention_table, prefill_table
from hwmodels.analysis.calibration.intervals import interval_record
from hwmodels.analysis.calibration.kernel_tables import KernelTableError, TableName, data_sheet
from hwmodels.analysis.calibration.least_squares import Fit
from hwmodels.analysis.calibration.report import relative_error
from hwmodels.analysis.calibration.splits import half_of_groups

#: Fits of attention: of each width and of prefill all rows, and both halves.
_FITS = 3


def refit_attention(
    system: str,
    engine: str,
    version: str,
    *,
    multiprocessors: float | None = None,
    root: str | Path | None = None,
    advance: Callable[[str], None] = lambda note: None,
) -> dict[str, Any]:
    """Decoding attention by format of keys and values, and prefill, each with halves of the batches and heads held out.

    Args:
        advance: called after each part.
    Raises:
        KernelTableError: a table or the data sheet cannot be read, or has too few rows to fit to.
    """
    sheet = data_sheet(system, multiprocessors=multiprocessors, root=root)
    decoding, unit = {}, None
    table = TableName(system, engine, version, "attention")
    for kind, bits in KV_FORMAT_BITS.items():
        try:
            rows = attention_table(table, kind, root=root)
        except KernelTableError:
            if unit is None:
                raise
            continue
        blocks = limited_by_blocks(table, kind)
        fits = _fits(lambda train, rows=rows, b=blocks: fit_attention(rows, sheet, train, blocks=b), rows, table)
        unit = unit or fits[0].unit
        decoding[kind] = {"kv_bits": bits} | _record(table, rows, decoding_rows(rows), fits)
        advance(f"{system} attention {kind}")
    assert unit is not None
    table = TableName(system, engine, version, "prefill")
    prompts = prefill_table(table, root=root)
    fits = _fits(lambda train: fit_prefill(prompts, sheet, unit, train), prompts, table)
    advance(f"{system} prefill")
    return {"attention": decoding, "prefill": _record(table, prompts, prefill_rows(prompts), fits)}


def _fits(fitted: Callable[[Any], Any], rows: Any, table: TableName) -> list[Any]:
    half = half_of_groups(_groups(rows))
    try:
        return [fitted(train) for train in (np.ones(len(half), bool), half, ~half)]
    except ValueError as error:
        raise KernelTableError(f"{table} attention cannot be fitted: {error}") from error


def _groups(rows: Any) -> list[str]:
    return [f"{int(b)} {int(h)} {int(k)}" for b, h, k in zip(rows.batch, rows.num_heads, rows.num_kv_heads)]


def _record(table: TableName, rows: Any, used: Any, fits: list[Any]) -> dict[str, Any]:
    half = half_of_groups(_groups(rows))
    whole, first, second = fits
    held_out = np.where(half, second.predicted_s, first.predicted_s)
    error = lambda predicted: dataclasses.asdict(relative_error(predicted[used], rows.seconds[used]))
    fit: Fit = whole.fit
    return {
        "status": "calibrated",
        "table": f"aiconfigurator-core {table}",
        "split": "all rows; errors: both halves of the batches and heads by hash, each held out of a fit to the other",
        "rows": int(used.sum()),
        "at_bound": list(fit.at_bound),
        "interval": interval_record(held_out, rows.seconds, used, _groups(rows)),
        "coefficients": dict(fit.estimates),
        "standard_errors": {n: e for n, e in fit.standard_errors.items() if not math.isnan(e)},
        "errors": {"fitted": error(whole.predicted_s), "held out": error(held_out)},
    }
