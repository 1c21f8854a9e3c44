"""Which tables the routed experts of each file of the catalog are from."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.silicon.refit_experts import (
    ExpertRefit,
    baselines_of,
    groups_of,
    other_kernels,
    refit_experts,
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
from hwmodels.catalog.calibrations import calibration_record
from hwmodels.compute.gpu_experts import ExpertCoefficients, GpuExperts

__all__ = ["EXPERTS", "ExpertSource", "fit_sources", "judge_experts"]


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


#: The format that every file has.
_WIDEST = "bfloat16"


class ExpertSource(NamedTuple):
    """Where the numbers of a format of experts are from.

    Attributes:
        engine, version: of the table that they are fitted to, or judged on where they are lent.
        main_kernel: rows of the kernel alone that ran most networks.
        lent_by: (GPU, engine, format) of the catalog whose numbers these are; the table then judges them alone.
        read_bits: bits per weight that the kernel reads at least, as of `ExpertCoefficients`.
    """

    engine: str
    version: str
    main_kernel: bool = False
    lent_by: tuple[str, str, str] | None = None
    read_bits: float = 0.0


_TRTLLM = {"bfloat16": ExpertSource("trtllm", "1.3.0rc20")}
_INT4 = {"int4_wo": ExpertSource("sglang", "0.5.10")}
_HOPPER = _TRTLLM | _INT4
_AMPERE = {"bfloat16": ExpertSource("sglang", "0.5.10")} | _INT4
_OWN = {"bfloat16": ExpertSource("vllm", "0.24.0")}
#: Tables that mix kernels: most networks run FlashInfer's of TensorRT-LLM, others CUTLASS' (vLLM) or Triton's (SGLang).
_OWN_MAIN = {"bfloat16": ExpertSource("vllm", "0.24.0", main_kernel=True)}
_SGLANG_MAIN = {"bfloat16": ExpertSource("sglang", "0.5.14", main_kernel=True)}

#: MXFP4 as gpt-oss has it; vLLM and SGLang run that of other networks by another kernel.
_MXFP4 = "w4a16_mxfp4"
_VLLM_MXFP4 = {_MXFP4: ExpertSource("vllm", "0.24.0", main_kernel=True)}
_TRTLLM_MXFP4 = {_MXFP4: ExpertSource("trtllm", "1.3.0rc20")}
#: Rows of one network are too few to fit to.
_LENT_MXFP4 = {_MXFP4: ExpertSource("trtllm", "1.3.0rc20", lent_by=("h200-sxm", "trtllm", _MXFP4))}
_SGLANG_MXFP4 = {_MXFP4: ExpertSource("sglang", "0.5.14", main_kernel=True)}


def _expanded(gpu: str) -> dict[str, ExpertSource]:
    """SGLang's Triton kernel: it takes as long as reading 16 bits per weight does, 4.2 times the roofline at 4.25 bits."""
    return {_MXFP4: ExpertSource("sglang", "0.5.14", True, (gpu, "sglang", "bfloat16"), 16.0)}


#: The tables of a file's experts: GPU -> engine -> {format: source}. An engine's own where it has rows enough and its
#: held-out error is within `LARGEST_HELD_OUT_ERROR`, otherwise those of another: tiles of SGLang depend on whether somebody
#: tuned them for a network's sizes, which no six numbers follow. Where no other's is nearer, its own all the same.
EXPERTS: dict[str, dict[str, dict[str, ExpertSource]]] = {
    "a100-sxm": {"trtllm": _AMPERE, "vllm": _AMPERE, "sglang": _AMPERE},
    "b200-sxm": {
        "trtllm": _TRTLLM | _VLLM_MXFP4,
        "vllm": _OWN_MAIN | _VLLM_MXFP4,
        "sglang": _SGLANG_MAIN | _VLLM_MXFP4,
    },
    "h100-sxm": {
        "trtllm": _HOPPER | _LENT_MXFP4,
        "vllm": _HOPPER | _OWN | _VLLM_MXFP4,
        "sglang": _HOPPER | _expanded("h100-sxm"),
    },
    "h200-sxm": {
        "trtllm": _HOPPER | _TRTLLM_MXFP4,
        "vllm": _HOPPER | _OWN | _VLLM_MXFP4,
        "sglang": _HOPPER | _expanded("h200-sxm"),
    },
    "l40s": {"trtllm": _TRTLLM, "vllm": _OWN | _VLLM_MXFP4, "sglang": _TRTLLM | _expanded("l40s")},
    "rtx-pro-6000": {"trtllm": _TRTLLM, "vllm": _OWN | _VLLM_MXFP4, "sglang": _SGLANG_MAIN | _SGLANG_MXFP4},
}


def fit_sources(
    system: str, sources: Mapping[str, ExpertSource], options: Mapping[str, Any], *, own: tuple[str | None, str]
) -> dict[str, ExpertRefit]:
    """Each format of one file that has enough rows, 16 bits first; the others are named on stderr.

    Args:
        system: of the tables.
        sources: format -> where its numbers are from.
        options: of `refit_experts` and `judge_experts`.
        own: GPU and engine of the file: what they lend is what has just been fitted.
    """
    found: dict[str, ExpertRefit] = {}
    for kind, source in sources.items():
        table = TableName(system, source.engine, source.version, "moe")
        widest = found[_WIDEST].fit if kind != _WIDEST and _WIDEST in found else None
        chosen = {"main_kernel": source.main_kernel, "wide": widest and widest.unit, **options}
        try:
            if source.lent_by is None:
                found[kind] = refit_experts(table, kind, **chosen)
                continue
            *whose, lent = source.lent_by
            here = tuple(whose) == own and lent in found
            lender = found[lent].record if here else calibration_record(*whose)["experts"][lent]
            found[kind] = judge_experts(table, kind, lender, read_bits=source.read_bits, **chosen)
        except KernelTableError as error:
            print(error, file=sys.stderr)
    return found
