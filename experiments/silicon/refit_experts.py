"""Fit one table of experts: six numbers per weight format, errors of networks held out, and the entry for the catalog."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hwmodels.analysis.calibration.expert_tables import CACHE_BYTES, ExpertTable, expert_table
from hwmodels.analysis.calibration.experts import (
    LEAST_INNER_SIZE,
    ExpertFit,
    expert_coefficients,
    expert_roofline,
    fell_back,
    fit_experts,
    modelled_rows,
)
from hwmodels.analysis.calibration.intervals import interval_record
from hwmodels.analysis.calibration.kernel_tables import KernelTableError, TableName, data_sheet
from hwmodels.analysis.calibration.report import CalibrationReport, error_by_range, relative_error
from hwmodels.analysis.calibration.splits import half_of_groups, some_of
from hwmodels.analysis.calibration.table_routing import EVEN

#: Tables of experts of other versions than the engine's: GPU -> engine -> {format: version}.
OTHER_VERSIONS: dict[str, dict[str, dict[str, str]]] = {
    "h100-sxm": {"sglang": {"int4_wo": "0.5.10"}},
    "h200-sxm": {"sglang": {"int4_wo": "0.5.10"}},
}

#: Fewest rows of a format that six numbers are fitted to.
LEAST_ROWS = 200
#: Rows that one fit sees.
FITTED_ROWS = 2000

#: Fits of one format: all, both halves of the networks, and all but those of so many experts.
EXPERT_FITS = 4
_HELD_OUT_EXPERTS = 128


@dataclasses.dataclass(frozen=True)
class ExpertRefit:
    """One format of one table: fitted to all rows (`fit`), and judged by what was held out of other fits (`report`)."""

    rows: ExpertTable
    fit: ExpertFit
    report: CalibrationReport
    record: dict[str, Any]  # the format's part of a catalog file
    held_out: Any  # rows that `predicted_s` knows nothing of: all, each from the fit to the other half
    predicted_s: Any


def refit_experts(
    table: TableName,
    weight_format: str,
    *,
    multiprocessors: float | None = None,
    root: str | Path | None = None,
    advance: Callable[[str], None] = lambda note: None,
) -> ExpertRefit:
    """Fit to all networks, to halves of them, and to those whose number of experts is not 128.

    Args:
        advance: called after each of the four fits.
    Raises:
        KernelTableError: the table or the data sheet cannot be read, or has too few rows to fit to.
    """
    rows, cache_bytes = expert_table(table, weight_format, root=root), CACHE_BYTES.get(table.system, 0)
    sheet = data_sheet(table.system, multiprocessors=multiprocessors, root=root)
    modelled = modelled_rows(rows, sheet, cache_bytes)
    uneven = modelled & (rows.distribution != EVEN)

    def fitted(train: Any) -> ExpertFit:
        try:
            result = fit_experts(rows, sheet, some_of(train & uneven, FITTED_ROWS), cache_bytes=cache_bytes)
        except ValueError as error:
            raise KernelTableError(f"{table} {weight_format} cannot be fitted: {error}") from error
        advance(f"{table.system} experts {weight_format}")
        return result

    error = lambda predicted, chosen: relative_error(predicted[chosen], rows.seconds[chosen])
    if uneven.sum() < LEAST_ROWS:
        raise KernelTableError(
            f"{table} holds {uneven.sum()} rows of {weight_format} experts that are modelled; too few"
        )
    whole = fitted(uneven)
    half = half_of_groups(rows.network.tolist())
    first, second = fitted(half), fitted(~half)
    by_halves = np.where(half, second.predicted_s, first.predicted_s)
    few = rows.num_experts != _HELD_OUT_EXPERTS
    beyond = fitted(few).predicted_s if (uneven & few).any() and (uneven & ~few).any() else by_halves
    halves = [error(one.predicted_s, uneven & test).mean for one, test in ((first, ~half), (second, half))]
    fallen = int((fell_back(rows, sheet) & (rows.inner_size >= LEAST_INNER_SIZE)).sum())
    networks = len(set(rows.network[uneven]))
    notes = [
        f"{networks} networks; loads as power laws have them, exponents 1.01 and 1.2; "
        f"parts of experts of {LEAST_INNER_SIZE} and more.",
        f"{fallen} rows of kernels that fell back to others are left out, and those whose weights fit into the cache.",
    ]
    roofline = expert_roofline(rows, sheet)
    factor = float(np.median(rows.seconds[uneven] / roofline[uneven]))
    report = CalibrationReport(
        title=f"{table} experts {weight_format}",
        estimates=whole.fit.estimates,
        standard_errors=whole.fit.standard_errors,
        errors={
            "all networks fitted": error(whole.predicted_s, uneven),
            "half of the networks, held out": error(by_halves, uneven),
            f"networks of {_HELD_OUT_EXPERTS} experts held out": error(beyond, uneven & ~few),
            "even loads, not fitted": error(whole.predicted_s, modelled & ~uneven),
        },
        by_range=error_by_range(rows.tokens[uneven], by_halves[uneven], rows.seconds[uneven]),
        baselines={
            "roofline": error(roofline, uneven),
            "roofline by a constant": error(factor * roofline, uneven),
        },
        notes=notes,
    )
    plain = report.to_dict()
    record = {
        "status": "calibrated",
        "table": f"aiconfigurator-core {table}",
        "split": "all networks; errors: both halves of the networks by hash, and those of 128 experts held out",
        "weight_bits": rows.weight_bits,
        "rows": int(uneven.sum()),
        "held_out_halves": halves,
        "interval": interval_record(by_halves, rows.seconds, uneven, rows.network.tolist()),
        "at_bound": list(whole.fit.at_bound),
        "scatter": whole.fit.scatter,
        "coefficients": {k: float(v) for k, v in vars(expert_coefficients(whole.fit.estimates)).items()},
        **{name: plain[name] for name in ("standard_errors", "errors", "by_range", "baselines", "notes")},
    }
    return ExpertRefit(rows, whole, report, record, np.ones(len(rows.tokens), bool), by_halves)
