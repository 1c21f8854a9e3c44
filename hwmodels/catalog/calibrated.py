"""GPUs whose matrix products, experts and attention are calibrated to measured kernels: `calibrated_gpu("a100-sxm")`.

Each file below `calibrated/` is written by `python -m experiments.silicon`: a data sheet, for every weight format the eight
fitted numbers with the table, its version and the errors, for every format of routed experts the same with six numbers, and
the numbers of decoding attention. None is edited by hand.
"""

from __future__ import annotations

import dataclasses
import importlib.resources
import tomllib
from collections.abc import Mapping
from importlib.resources.abc import Traversable
from typing import Any

import numpy as np

from hwmodels.catalog.entries import EntryError, UnknownNameError, near_matches
from hwmodels.compute.calibrated_gpu import CalibratedGpu
from hwmodels.compute.gpu import GpuGemm
from hwmodels.compute.gpu_attention import GpuAttention
from hwmodels.compute.gpu_experts import ExpertCoefficients, GpuExperts
from hwmodels.compute.gpu_formats import GemmCoefficients

__all__ = [
    "LARGEST_HELD_OUT_ERROR",
    "calibrated_attention",
    "calibrated_experts",
    "calibrated_gpu",
    "calibrated_names",
    "calibrated_unit",
    "calibration_record",
    "calibration_remarks",
    "held_out_error",
    "is_used",
    "with_data_sheet",
]

#: Mean error of held-out shapes beyond which a packed format's fit is not used: the bytes of a wider format's kernel are scaled
#: instead. Fits in the catalog that describe their kernels lie below 8 %, the one that does not above 16 %.
LARGEST_HELD_OUT_ERROR = 0.10

_SHEET = ("peak_flops_per_s", "bandwidth_bytes_per_s", "multiprocessors")


def calibrated_names() -> tuple[str, ...]:
    """Names of all calibrated GPUs, sorted."""
    return tuple(sorted(f.name.removesuffix(".toml") for f in _folder().iterdir() if f.name.endswith(".toml")))


def calibrated_gpu(name: str) -> GpuGemm:
    """Matrix products of a calibrated GPU, with every weight format whose kernels the fit describes (`is_used`).

    Raises:
        UnknownNameError: no such GPU.
        EntryError: its file is damaged.
    """
    record = calibration_record(name)
    try:
        formats = sorted(_used(record), key=lambda entry: entry["weight_bits"])
        sheet = {field: float(record["data_sheet"][field]) for field in _SHEET}
        numbers = {
            field: np.array([entry["coefficients"][field] for entry in formats], np.float32)
            for field in GemmCoefficients.__dataclass_fields__
        }
        widths = tuple(float(entry["weight_bits"]) for entry in formats)
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(name, error) from error
    return GpuGemm(**sheet, coefficients=GemmCoefficients(**numbers), weight_widths=widths)


def calibrated_unit(name: str, *, multiprocessors: float) -> CalibratedGpu:
    """Products and attention of a calibrated GPU as the matrix unit of a device, whose data sheet may be another's.

    Args:
        multiprocessors: of the device.
    Raises:
        UnknownNameError: no such GPU.
        EntryError: its file is damaged.
    """
    gemm, attention, experts = calibrated_gpu(name), calibrated_attention(name), calibrated_experts(name)
    formats = tuple(
        GemmCoefficients(**{field: float(values[i]) for field, values in vars(gemm.coefficients).items()})
        for i in range(len(gemm.weight_widths))
    )
    return CalibratedGpu(
        multiprocessors=multiprocessors,
        formats=formats,
        experts=tuple(unit.coefficients for unit in experts.values()),
        expert_widths=tuple(experts),
        attention=dataclasses.replace(attention, bandwidth_bytes_per_s=None),
        weight_widths=gemm.weight_widths,
        overlap_temperature=gemm.overlap_temperature,
        remarks=calibration_remarks(name),
    )


def calibrated_experts(name: str) -> dict[float, GpuExperts]:
    """Routed experts of a calibrated GPU: bits per weight, increasing -> its kernels; empty where nobody measured them.

    Formats are used as those of products are: see `is_used`.

    Raises:
        UnknownNameError: no such GPU.
        EntryError: its file is damaged.
    """
    record = calibration_record(name)
    try:
        sheet = {field: float(record["data_sheet"][field]) for field in _SHEET}
        return {
            float(entry["weight_bits"]): GpuExperts(
                **sheet,
                coefficients=ExpertCoefficients(
                    **{field: float(entry["coefficients"][field]) for field in ExpertCoefficients.__dataclass_fields__}
                ),
            )
            for entry in sorted(_used(record, "experts"), key=lambda entry: entry["weight_bits"])
        }
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(name, error) from error


def calibrated_attention(name: str) -> GpuAttention:
    """Decoding attention of a calibrated GPU.

    Raises:
        UnknownNameError: no such GPU.
        EntryError: its file is damaged, or has no attention.
    """
    record = calibration_record(name)
    try:
        numbers = {field: float(value) for field, value in record["attention"]["coefficients"].items()}
        return GpuAttention(bandwidth_bytes_per_s=float(record["data_sheet"]["bandwidth_bytes_per_s"]), **numbers)
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(name, error) from error


def calibration_record(name: str) -> dict[str, Any]:
    """A calibrated GPU's whole file: tables, versions, splits, standard errors, errors by range, baselines.

    Raises:
        UnknownNameError: no such GPU.
    """
    slug, allowed = name.strip().lower(), calibrated_names()
    if slug not in allowed:
        raise UnknownNameError(
            f"unknown calibrated GPU {name!r};{near_matches(slug, allowed)} allowed: {', '.join(allowed)}"
        )
    return tomllib.loads((_folder() / f"{slug}.toml").read_text(encoding="utf-8"))


def held_out_error(entry: Mapping[str, Any]) -> float:
    """Mean error of a format's products whose shapes were held out: the worse of all ways in which they were."""
    apart = [errors["mean"] for name, errors in entry["errors"].items() if name.endswith("held out")]
    return max([*entry["held_out_halves"], *apart])


def is_used(record: Mapping[str, Any], kind: str, part: str = "formats") -> bool:
    """Whether a format's fit is a kernel of the GPU: it describes held-out shapes, or it is the widest and all there is.

    Args:
        record: a calibrated GPU's whole file.
        kind: the format's name there.
        part: "formats", those of products, or "experts".
    """
    formats = record[part]
    widest = max(entry["weight_bits"] for entry in formats.values())
    entry = formats[kind]
    return entry["weight_bits"] == widest or held_out_error(entry) <= LARGEST_HELD_OUT_ERROR


def calibration_remarks(name: str) -> tuple[str, ...]:
    """What a reader of this GPU's times should know: fits left out, fits that err much, fitted numbers on a bound.

    Raises:
        UnknownNameError: no such GPU.
        EntryError: its file is damaged.
    """
    record = calibration_record(name)
    try:
        found = _format_remarks(record, "formats", "weights")
        if record.get("experts"):
            found += _format_remarks(record, "experts", "experts")
        else:
            found.append("kernels of routed experts were not measured: they are priced as products one after the other")
        attention = record["attention"]
        error = attention["errors"]["held out"]["mean"]
        # A number on a bound has no standard error.
        bound = [field for field in attention["coefficients"] if field not in attention["standard_errors"]]
        if bound or error > LARGEST_HELD_OUT_ERROR:
            words = [f"held-out error {error:.0%}"] + ([f"on a bound of the fit: {', '.join(bound)}"] if bound else [])
            found.append(f"kernels of attention: {'; '.join(words)}")
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(name, error) from error
    return tuple(found)


def _format_remarks(record: Mapping[str, Any], part: str, of_what: str) -> list[str]:
    found = []
    for kind, entry in sorted(record[part].items(), key=lambda item: item[1]["weight_bits"]):
        words, bound = [f"held-out error {held_out_error(entry):.0%}"], entry["at_bound"]
        if bound:
            words.append(f"on a bound of the fit: {', '.join(bound)}")
        if not is_used(record, kind, part):
            found.append(f"kernels of {entry['weight_bits']:g}-bit {of_what} are not used: {'; '.join(words)}")
        elif bound or held_out_error(entry) > LARGEST_HELD_OUT_ERROR:
            found.append(f"kernels of {entry['weight_bits']:g}-bit {of_what}: {'; '.join(words)}")
    return found


def _used(record: Mapping[str, Any], part: str = "formats") -> list[Mapping[str, Any]]:
    return [entry for kind, entry in record.get(part, {}).items() if is_used(record, kind, part)]


def with_data_sheet(
    unit: GpuGemm, *, peak_flops_per_s: float, bandwidth_bytes_per_s: float, multiprocessors: float
) -> GpuGemm:
    """A GPU that nobody measured, from a calibrated sibling of its architecture and its own data sheet.

    Args:
        unit: the sibling; its fitted shares, costs and latencies are taken over.
        peak_flops_per_s, bandwidth_bytes_per_s, multiprocessors: as in `GpuGemm`.
    """
    return dataclasses.replace(
        unit,
        peak_flops_per_s=peak_flops_per_s,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        multiprocessors=multiprocessors,
    )


def _folder() -> Traversable:
    return importlib.resources.files("hwmodels.catalog") / "calibrated"


def _damaged(name: str, error: Exception) -> EntryError:
    return EntryError(
        f"calibrated/{name}.toml lacks or misstates {error}; write it again with python -m experiments.silicon"
    )
