"""GPUs whose matrix products, experts and attention are calibrated to measured kernels: `calibrated_gpu("a100-sxm")`.

Their files are those of `hwmodels.catalog.calibrations`, one for each engine of a GPU.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from hwmodels.catalog.calibrations import (
    DEFAULT_ENGINE,
    calibrated_formats,
    calibration_record,
    calibration_remarks,
    reading,
    used_attention,
    used_formats,
)
from hwmodels.catalog.entries import UnknownNameError, near_matches
from hwmodels.compute.calibrated_gpu import CalibratedGpu
from hwmodels.compute.gpu import GpuGemm
from hwmodels.compute.gpu_attention import GpuAttention, GpuPrefill
from hwmodels.compute.gpu_experts import ExpertCoefficients, GemmCoefficients, GpuExperts
from hwmodels.compute.unit import ErrorInterval, FitRemark

__all__ = ["calibrated_attention", "calibrated_experts", "calibrated_gpu", "calibrated_prefill", "calibrated_unit"]

_HOST = ("host_s", "host_rows_s")
#: GPUs and engines whose attention does not cut contexts where a sequence has several new tokens, and rows of its tile. vLLM
#: calls FlashAttention 2 on all but Hopper and Blackwell of data centers, which cuts them for one token alone
#: (`set_params_splitkv`; github.com/vllm-project/flash-attention, pull requests 176, 190 and 193, open in September 2026).
_UNSPLIT = {("a100-sxm", "vllm"), ("l40s", "vllm"), ("rtx-pro-6000", "vllm")}
_UNSPLIT_ROWS = 64.0
_SHEET = ("peak_flops_per_s", "bandwidth_bytes_per_s", "multiprocessors")


def calibrated_gpu(
    name: str, engine: str | None = None, weight_format: str | None = None, *, without_graph: bool = False
) -> GpuGemm:
    """Matrix products of a calibrated GPU, with every weight format whose kernels the fit describes (`is_used`).

    Args:
        name: of `calibrated_names`.
        engine: of `calibrated_engines`; the GPU's own unless given.
        weight_format: of `calibrated_formats`: what weights narrower than 16 bits are multiplied in; those with 16-bit
            activations unless given.
        without_graph: with the host's time in every product, where the format's table has it. Engines replay CUDA graphs,
            so that it is left out unless asked for.
    Raises:
        UnknownNameError: no such GPU, engine or format.
        EntryError: its file is damaged.
    """
    held = calibrated_formats(name, engine)
    if weight_format is not None and weight_format not in held:
        shown = engine or DEFAULT_ENGINE
        raise UnknownNameError(
            f"format {weight_format!r} is not measured on {name} with {shown};{near_matches(weight_format, held)} "
            f"allowed: {', '.join(held) or 'none, only bfloat16 is'}"
        )
    with reading(name, engine) as record:
        formats = used_formats(record, wanted=weight_format)
        sheet = {field: float(record["data_sheet"][field]) for field in _SHEET}
        coefficients = [_numbers(entry, GemmCoefficients) for entry in formats]
        numbers = {
            one.name: np.array([values.get(one.name, one.default) for values in coefficients], np.float32)
            for one in dataclasses.fields(GemmCoefficients)
        }
        # Without a graph the host starts the products of all formats.
        numbers |= {host: numbers[host].max() * np.full(len(formats), float(without_graph)) for host in _HOST}
        widths = tuple(float(entry["weight_bits"]) for entry in formats)
        rows = tuple((float(e["weight_bits"]), float(e["dispatched_rows"])) for e in formats if "dispatched_rows" in e)
    return GpuGemm(**sheet, coefficients=GemmCoefficients(**numbers), weight_widths=widths, dispatched_rows=rows)


def calibrated_unit(
    name: str,
    *,
    multiprocessors: float,
    engine: str | None = None,
    weight_format: str | None = None,
    lent_to: str | None = None,
) -> CalibratedGpu:
    """Products and attention of a calibrated GPU as the matrix unit of a device, whose data sheet may be another's.

    Args:
        multiprocessors: of the device.
        engine, weight_format: as of `calibrated_gpu`.
        lent_to: what a device is called on which no kernels were measured; None: they were, on it or on a card with its chip.
    Raises:
        UnknownNameError: no such GPU, engine or format.
        EntryError: its file is damaged.
    """
    own = engine or DEFAULT_ENGINE
    remarks = calibration_remarks(name, engine, weight_format)
    if lent_to is not None:
        said = f"no kernels of {own} were measured on {lent_to}: those of {name} count, at the rates of the device"
        remarks = (FitRemark(said, "products"), *remarks)
    gemm, experts = calibrated_gpu(name, engine, weight_format), calibrated_experts(name, engine, weight_format)
    attention = calibrated_attention(name, engine)
    formats = tuple(
        GemmCoefficients(**{field: float(values[i]) for field, values in vars(gemm.coefficients).items()})
        for i in range(len(gemm.weight_widths))
    )
    return CalibratedGpu(
        multiprocessors=multiprocessors,
        formats=formats,
        experts=tuple(unit.coefficients for unit in experts.values()),
        expert_widths=tuple(experts),
        attention=tuple(
            dataclasses.replace(unit, bandwidth_bytes_per_s=None, multiprocessors=None) for unit in attention.values()
        ),
        prefill=calibrated_prefill(name, engine),
        weight_widths=gemm.weight_widths,
        dispatched_rows=gemm.dispatched_rows,
        kv_widths=tuple(attention),
        engine=own,
        weight_format=weight_format,
        lent=lent_to is not None,
        unsplit_rows=_UNSPLIT_ROWS if (name.strip().lower(), own) in _UNSPLIT else 0.0,
        overlap_temperature=gemm.overlap_temperature,
        remarks=remarks,
        spreads=_spreads(name, engine, weight_format),
    )


def calibrated_experts(
    name: str, engine: str | None = None, weight_format: str | None = None
) -> dict[float, GpuExperts]:
    """Routed experts of a calibrated GPU: bits per weight, increasing -> its kernels; empty where nobody measured them.

    Formats are used as those of products are: see `is_used`.

    Raises:
        UnknownNameError: no such GPU or engine.
        EntryError: its file is damaged.
    """
    with reading(name, engine) as record:
        sheet = {field: float(record["data_sheet"][field]) for field in _SHEET}
        return {
            float(entry["weight_bits"]): GpuExperts(
                **sheet, coefficients=ExpertCoefficients(**_numbers(entry, ExpertCoefficients))
            )
            for entry in used_formats(record, "experts", weight_format)
        }


def calibrated_attention(name: str, engine: str | None = None) -> dict[float, GpuAttention]:
    """Decoding attention of a calibrated GPU: bits per element of keys and values, increasing -> its kernel.

    Raises:
        UnknownNameError: no such GPU or engine.
        EntryError: its file is damaged, or has no attention.
    """
    with reading(name, engine) as record:
        sheet = {field: float(record["data_sheet"][field]) for field in ("bandwidth_bytes_per_s", "multiprocessors")}
        return {
            float(entry["kv_bits"]): GpuAttention(
                **{field: float(value) for field, value in entry["coefficients"].items()}, **sheet
            )
            for entry in used_attention(record)
        }


def calibrated_prefill(name: str, engine: str | None = None) -> GpuPrefill:
    """What many new tokens add to decoding attention; errors as of `calibrated_attention`."""
    with reading(name, engine) as record:
        return GpuPrefill(**_numbers(record["prefill"], GpuPrefill))


def _spreads(name: str, engine: str | None, weight_format: str | None) -> tuple[ErrorInterval, ...]:
    """Intervals of all fits that are used; a file of before intervals has none."""
    record = calibration_record(name, engine)
    parts = [("products", entry["weight_bits"], entry) for entry in used_formats(record, wanted=weight_format)]
    parts += [("experts", entry["weight_bits"], entry) for entry in used_formats(record, "experts", weight_format)]
    parts += [("attention", entry["kv_bits"], entry) for entry in used_attention(record)]
    parts += [("prefill", 16.0, record["prefill"])]
    own = engine or DEFAULT_ENGINE
    return tuple(
        ErrorInterval(
            part,
            float(bits),
            *(float(entry["interval"][end]) for end in ("low", "high", "coverage")),
            borrowed_from=_borrowed_from(entry, own),
        )
        for part, bits, entry in parts
        if "interval" in entry
    )


def _borrowed_from(entry: Mapping[str, Any], engine: str) -> str:
    """Whose table a fit is to, where that is another engine's; empty where it is its own."""
    system, other, version = str(entry["table"]).split()[-1].split("/")
    return "" if other == engine and "judged_on" not in entry else f"{other} {version} on {system}"


def _numbers(entry: Mapping[str, Any], kind: Any) -> dict[str, float]:
    given, fields = entry["coefficients"], dataclasses.fields(kind)
    return {
        one.name: float(given[one.name]) for one in fields if one.name in given or one.default is dataclasses.MISSING
    }
