"""Experts of a table that nothing was fitted to: numbers of another fit, judged on its rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.silicon.refit_experts import (
    ExpertRefit,
    baselines_of,
    groups_of,
    other_kernels,
    seconds_of,
    wider_record,
)
from hwmodels.analysis.calibration.expert_tables import CACHE_BYTES, expert_table, rows_of_main_kernel
from hwmodels.analysis.calibration.experts import expert_unit, modelled_rows
from hwmodels.analysis.calibration.intervals import interval_record
from hwmodels.analysis.calibration.kernel_tables import KernelTableError, TableName, data_sheet
from hwmodels.analysis.calibration.report import CalibrationReport, error_by_range, relative_error
from hwmodels.analysis.calibration.splits import half_of_groups
from hwmodels.analysis.calibration.table_routing import EVEN
from hwmodels.compute.gpu_experts import ExpertCoefficients, GpuExperts

__all__ = ["judge_experts"]


def judge_experts(
    table: TableName,
    weight_format: str,
    lender: Mapping[str, Any],
    *,
    read_bits: float = 0.0,
    main_kernel: bool = False,
    wide: GpuExperts | None = None,
    multiprocessors: float | None = None,
    root: str | Path | None = None,
    advance: Callable[[str], None] = lambda note: None,
) -> ExpertRefit:
    """The lender's numbers with this GPU's data sheet, and how far they lie from each row of uneven loads.

    Args:
        lender: a format's part of a catalog file.
        read_bits: bits per weight that the kernel reads at least; its own rows may all be left out for that, as launches far
            above the roofline are, so that rows are chosen by what it reads.
        main_kernel, wide, multiprocessors, root, advance: as of `refit_experts`.
    Raises:
        KernelTableError: the table or the data sheet cannot be read, or no row is of the model's kind.
    """
    held = expert_table(table, weight_format, root=root)
    rows = rows_of_main_kernel(held) if main_kernel else held
    sheet = data_sheet(table.system, multiprocessors=multiprocessors, root=root)
    as_read = dataclasses.replace(rows, weight_bits=max(rows.weight_bits, read_bits))
    chosen = modelled_rows(as_read, sheet, CACHE_BYTES.get(table.system, 0)) & (rows.distribution != EVEN)
    if not chosen.any():
        raise KernelTableError(f"{table} holds no rows of {weight_format} experts that are modelled")
    coefficients = {**lender["coefficients"], "read_bits": read_bits}
    predicted = seconds_of(expert_unit(sheet, ExpertCoefficients(**coefficients)), rows, rows.weight_bits)
    error = lambda of, where: relative_error(of[where], rows.seconds[where])
    several = len(set(rows.network[chosen])) > 1
    groups = groups_of(rows, chosen)
    half = half_of_groups(rows.network.tolist() if several else groups)
    report = CalibrationReport(
        title=f"{table} experts {weight_format}, not fitted",
        estimates=dict(lender["coefficients"]),
        standard_errors=dict(lender["standard_errors"]),
        errors={"all rows, held out": error(predicted, chosen)},
        by_range=error_by_range(rows.tokens[chosen], predicted[chosen], rows.seconds[chosen]),
        baselines=baselines_of(rows, sheet, chosen, wide),
        notes=[
            f"numbers of {str(lender['table']).split()[-1]} at {lender['weight_bits']:g} bits; none is from these rows.",
            *([f"the kernel reads {read_bits:g} bits per weight."] if read_bits else []),
            *other_kernels(held, rows),
        ],
    )
    plain = report.to_dict()
    record = {
        "status": "calibrated",
        "table": lender["table"],
        "judged_on": f"aiconfigurator-core {table}",
        "split": f"no row was fitted to; halves of {'networks' if several else 'numbers of tokens'} by hash",
        "weight_bits": rows.weight_bits,
        "rows": int(chosen.sum()),
        "held_out_halves": [error(predicted, chosen & one).mean for one in (~half, half) if (chosen & one).any()],
        "interval": interval_record(predicted, rows.seconds, chosen, groups, few_groups=True),
        "at_bound": list(lender["at_bound"]),
        "scatter": lender["scatter"],
        "coefficients": coefficients,
        **wider_record(None if read_bits else wide, rows, chosen, predicted),
        **{name: plain[name] for name in ("standard_errors", "errors", "by_range", "baselines", "notes")},
    }
    advance(f"{table.system} experts {weight_format}")
    return ExpertRefit(rows, None, report, record, np.ones(len(rows.tokens), bool), predicted)
