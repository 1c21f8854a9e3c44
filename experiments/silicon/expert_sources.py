"""Which tables the routed experts of each file of the catalog are from."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from experiments.silicon.lent_experts import judge_experts
from experiments.silicon.refit_experts import ExpertRefit, refit_experts
from hwmodels.analysis.calibration.kernel_tables import KernelTableError, TableName
from hwmodels.catalog.calibrations import calibration_record

__all__ = ["EXPERTS", "ExpertSource", "fit_sources"]


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
