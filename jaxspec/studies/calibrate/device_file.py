"""The device file that a calibration writes, and doubts about its fits."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxspec.studies.calibrate.fits import Machine, PartFit
from jaxspec.studies.calibrate.table import Row

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


#: Mean error of rows that the fit did not see from which a sentence is due.
LARGEST_ERROR = 0.10


#: A time so many times from the fit to all of them is another unit, or a slip.
_FAR = 30.0


#: Operations per second that any processor of today exceeds in its fastest product, and that none exceeds.
_SLOWEST, _FASTEST = 1e10, 2e16


#: Share of the rows that a fit did not see within its 90 % interval below which a sentence is due, where there are enough rows.
_LEAST_COVERED, _ENOUGH_ROWS = 0.5, 6


#: Rows of products that are judged together, ends included.
_RANGES = ((1, 1), (2, 9), (10, 33), (34, 144), (145, math.inf))


def doubts_of(machine: Machine, table: Sequence[Row]) -> list[str]:
    """What a reader of the device's times should know."""
    found = [*machine.missing, *_slow(table)]
    for fit in machine.fits:
        what = f"products of {fit.bits:g}-bit weights" if fit.part == "products" else fit.part
        if fit.errors.rows == 0:
            found.append(f"{what}: too few shapes were measured, so that nothing could be held out")
        elif fit.errors.mean > LARGEST_ERROR:
            found.append(f"{what}: held-out error {100 * fit.errors.mean:.0f} % in the mean{_worst(fit, table)}")
        covered = [] if fit.interval is None else fit.interval["covered"]
        if covered and len(fit.rows) >= _ENOUGH_ROWS and np.mean(covered) < _LEAST_COVERED:
            shares = " and ".join(f"{100 * share:.0f} %" for share in covered)
            found.append(
                f"{what}: 90 % intervals hold {shares} of the times that they were not made from; do not rely on them"
            )
        found += _far(fit, what, table)
        if fit.at_bound:
            found.append(f"{what}: on a bound of the fit: {', '.join(fit.at_bound)}")
    return found


def _slow(table: Sequence[Row]) -> list[str]:
    """Whether all times may be in another unit."""
    fastest = max(row.rate for row in table if row.part == "product")
    if _SLOWEST <= fastest <= _FASTEST:
        return []
    return [f"the fastest product runs at {fastest:.1e} operations per second: check that all times are in seconds"]


def _far(fit: PartFit, what: str, table: Sequence[Row]) -> list[str]:
    """Whether some times may be in another unit."""
    seconds = np.array([table[i].seconds for i in fit.rows])
    ratio = seconds / fit.predicted
    away = np.maximum(ratio, 1.0 / ratio)
    count = int(np.count_nonzero(away > _FAR))
    if not count:
        return []
    worst = int(np.argmax(away))
    return [
        f"{what}: {count} of {len(seconds)} times are more than {_FAR:g} times from the fit, most "
        f"{described(table[fit.rows[worst]])}, {away[worst]:.0f} times {'longer' if ratio[worst] > 1 else 'shorter'}: "
        "check that they are in seconds"
    ]


def _worst(fit: PartFit, table: Sequence[Row]) -> str:
    """The range of rows, or the shape, that is described worst."""
    seconds = np.array([table[i].seconds for i in fit.rows])
    error = np.abs(fit.held_out / seconds - 1)
    if fit.part == "products":
        counts = np.array([table[i].rows for i in fit.rows])
        means = {
            _range(low, high): float(error[inside].mean())
            for low, high in _RANGES
            if (inside := (counts >= low) & (counts <= high)).any()
        }
        name = max(means, key=lambda one: means[one])
        return f", {100 * means[name]:.0f} % at {name}"
    worst = int(np.argmax(error))
    return f", worst {described(table[fit.rows[worst]])} with {100 * error[worst]:.0f} %"


def _range(low: float, high: float) -> str:
    if low == high:
        return f"{low:g} row"
    return f"{low:g} rows and more" if math.isinf(high) else f"{low:g} to {high:g} rows"


def described(row: Row) -> str:
    """A row's shape in words."""
    if row.part == "product":
        return f"{row.rows:g} x {row.inner:g} x {row.outer:g}"
    if row.part == "attention":
        return (
            f"{row.batch:g} x {row.tokens:g} tokens over {row.context_tokens:g}, {row.heads:g} heads on {row.kv_heads:g} "
            f"of {row.head_dim:g}"
        )
    if row.part == "step":
        cut = "" if math.isnan(row.layers) else f" in {row.layers:g} layers"
        return f"{row.batch:g} x {row.tokens:g} tokens of {row.architecture}{cut}"
    if row.part == "cycle":
        draft = f"a {row.draft_layers:g}-layer draft" if row.draft_layers else "a lookup"
        return f"{row.batch:g} x cycle of {row.tokens:g} tokens by {draft} for {row.architecture}"
    if row.part == "stream":
        return f"{row.read_bytes:g} bytes"
    if row.part in ("lookup", "sampling"):
        return f"{row.rows:g} rows of {row.vocab_size:g}"
    return row.part
