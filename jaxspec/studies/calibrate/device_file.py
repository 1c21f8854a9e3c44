"""The device file that a calibration writes: fitted numbers with their sources, row costs, held-out errors and intervals."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from jaxspec.studies.calibrate.fitted import PartFit
from jaxspec.studies.calibrate.machine import Machine

__all__ = ["SYSTEM", "device_text", "format_name"]

#: Source of the memory's size on the machine that was measured.
SYSTEM = "the system's own statement"

#: Parts that a spread may be of.
_SPREADS = ("products", "attention", "steps", "cycles")


def format_name(bits: float) -> str:
    """What a format is called in the file."""
    return {32.0: "float32", 16.0: "bfloat16"}.get(bits, f"bits_{bits:g}".replace(".", "_"))


def device_text(machine: Machine, title: str, remarks: tuple[str, ...], origin: str, *, capacity: str = SYSTEM) -> str:
    """The file's content.

    Args:
        title: of the device.
        remarks: for a reader of its times.
        origin: where the times come from, in a few words.
        capacity: where the memory's size comes from.
    """
    device, unit = machine.device, machine.device.matrix_unit
    widest = machine.products[max(machine.products)].fit
    rates = f"calibrated: {origin}: the fastest rate among the fits"
    lines = [
        "# Written by jaxspec calibrate.",
        f"title = {_text(title)}",
        _number("peak_flops_per_s", device.peak_flops_per_s, rates),
        _number("compute_efficiency", device.compute_efficiency, "calibrated: the unit has shares of its own"),
        _number("operator_latency_s", device.operator_latency_s, _source(widest, "launch_s", origin)),
        "",
        "[memory]",
        _number("bandwidth_bytes_per_s", device.memory.bandwidth_bytes_per_s, rates),
        _number(
            "efficiency", device.memory.efficiency, f"calibrated: {origin}: the largest stream over the fastest rate"
        ),
        _number("capacity_bytes", device.memory.capacity_bytes, capacity),
        "",
        "[matrix_unit]",
        'kind = "measured_host"',
        _number("overlap", unit.overlap_temperature, f"calibrated: {origin}: the best of three"),
        _number("cache_bytes", unit.cache_bytes, _source(widest, "cache_bytes", origin)),
        _number("cache_sharpness", unit.cache_sharpness, _source(widest, "cache_sharpness", origin)),
        f"remarks = [{', '.join(map(_text, remarks))}]",
    ]
    lines += _table("matrix_unit.attention", vars(unit.attention), machine.parts.get("attention"), origin)
    steps, between = machine.parts.get("steps"), vars(unit.between)
    of_part = {"row_s": machine.parts.get("lookup")} | dict.fromkeys(
        ("sample_s", "logit_s"), machine.parts.get("sampling")
    )
    lines += ["", "[matrix_unit.between]"]
    lines += [_number(name, value, _source(of_part.get(name, steps), name, origin)) for name, value in between.items()]
    for numbers, costs, bits in zip(unit.formats, unit.row_costs, unit.weight_widths, strict=True):
        prefix, fit = f"matrix_unit.formats.{format_name(bits)}", machine.products[bits].fit
        lines += _table(prefix, vars(numbers), fit, origin)
        lines.append(_number("weight_bits", bits, "as held"))
        lines += ["", f"[{prefix}.row_costs]", f"weights = {_list(costs.weights)}", f"rows = {_list(costs.rows)}"]
        lines += ["factors = [", *(f"  {_list(row)}," for row in costs.factors), "]"]
        lines.append(
            f"source = {_text(f'{origin}: median of measured times over those of the form, by size of the matrix')}"
        )
    for fit in machine.fits:
        if fit.part in _SPREADS and fit.interval is not None:
            lines += ["", "[[matrix_unit.held_out]]", *_held_out(fit)]
    if cycles := machine.parts.get("cycles"):
        lines += _table("engine_terms", cycles.estimates, cycles, origin)
    return "\n".join(lines) + "\n"


def _held_out(fit: PartFit) -> list[str]:
    assert fit.interval is not None
    errors = {"mean": fit.errors.mean, "median": fit.errors.median, "largest": fit.errors.largest}
    ends = {name: fit.interval[name] for name in ("low", "high", "coverage")}
    numbers = {"bits": fit.bits, "rows": fit.errors.rows, **errors, **ends}
    lines = [f"part = {_text(fit.part)}", *(f"{name} = {_digits(value)}" for name, value in numbers.items())]
    return [*lines, f"covered = {_list(fit.interval['covered'])}"]


def _table(prefix: str, numbers: Mapping[str, Any], fit: PartFit | None, origin: str) -> list[str]:
    return ["", f"[{prefix}]", *(_number(name, value, _source(fit, name, origin)) for name, value in numbers.items())]


#: Number of the device -> the fitted number that it is made of.
_MADE_OF = {
    "compute_efficiency": "flops_per_s",
    "near_efficiency": "near_bytes_per_s",
    "far_efficiency": "near_bytes_per_s",
    "memory_efficiency": "bytes_per_s",
}


def _source(fit: PartFit | None, name: str, origin: str) -> str:
    if fit is None:
        return f"assumed: {origin} has no such times"
    said = f"calibrated: {origin}, {len(fit.rows)} times of {fit.part}"
    fitted = _MADE_OF.get(name, name)
    if fitted in fit.at_bound:
        return f"{said}; on a bound of the fit"
    error = fit.standard_errors.get(fitted, math.nan)
    if math.isfinite(error) and fit.estimates.get(fitted):
        return f"{said}; standard error {100 * error / fit.estimates[fitted]:.2g} %"
    return said


def _number(name: str, value: float, source: str) -> str:
    return f"{name} = {{ value = {_digits(float(value))}, source = {_text(source)} }}"


def _digits(value: float) -> str:
    return f"{value:.7g}" if math.isfinite(value) else "nan"


def _list(values: Any) -> str:
    return f"[{', '.join(f'{float(value):.6g}' for value in values)}]"


def _text(text: str) -> str:
    return json.dumps(" ".join(text.split()), ensure_ascii=False)
