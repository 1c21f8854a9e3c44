"""`jaxspec calibrate`: from the machine at hand, or from times that a user brings, to a device file."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hwmodels import Architecture
from jaxspec.errors import InputError
from jaxspec.host.config import CalibrateConfig
from jaxspec.host.fits import Machine, PartFit, check_layers, check_products, fit_machine
from jaxspec.host.measuring import Measured, begun_here, device_memory_bytes, measure_machine, measured_title
from jaxspec.host.programs import companion_of
from jaxspec.host.result import CalibrateResult, FittedPart, MeasuredTime, RowStep, SeenNoise
from jaxspec.host.table import Row, read_rows, rows_text
from jaxspec.host.view import write_calibrate_report
from jaxspec.output_places import check_file_place
from jaxspec.partial_files import write_text
from jaxspec.report.assumptions import device_facts
from jaxspec.results import Quantity, calibrated, given, measured
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.execute import Outputs, execute_run
from jaxspec.runs.progress import Reporter
from jaxspec.runs.run_index import attempt, versions
from jaxspec.runs.stages import Stages
from jaxspec.settings import expect
from jaxspec.studies.measured.pricing import resolve_architecture

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
    lines = [*machine.missing, *_slow(table)]
    for fit in machine.fits:
        what = f"products of {fit.bits:g}-bit weights" if fit.part == "products" else fit.part
        if fit.errors.rows == 0:
            lines.append(f"{what}: too few shapes were measured, so that nothing could be held out")
        elif fit.errors.mean > LARGEST_ERROR:
            lines.append(f"{what}: held-out error {100 * fit.errors.mean:.0f} % in the mean{_worst(fit, table)}")
        covered = [] if fit.interval is None else fit.interval["covered"]
        if covered and len(fit.rows) >= _ENOUGH_ROWS and np.mean(covered) < _LEAST_COVERED:
            shares = " and ".join(f"{100 * share:.0f} %" for share in covered)
            lines.append(
                f"{what}: 90 % intervals hold {shares} of the times that they were not made from; do not rely on them"
            )
        lines += _far(fit, what, table)
        if fit.at_bound:
            lines.append(f"{what}: on a bound of the fit: {', '.join(fit.at_bound)}")
    return lines


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


#: Device file unless a place is given.
DEVICE_FILE = "my-machine.toml"


#: Files of the run directory beside those of every run.
_CONTENTS = ("device.toml", "measurements.csv")


_HEADLINE = ("step_error", "noise.believed")


#: Of times that a user brings: source of the memory's size, and what is said of it.
_NOT_TOLD = "assumed: that of the machine that fitted the times, which do not tell it"


_OTHER_MEMORY = (
    "the times do not tell how much memory the device has: capacity_bytes in its file is this machine's; correct it"
)


#: A device file that was written here begins so; others are not replaced.
_OURS = "# Written by jaxspec calibrate."


def calibrate(
    config: CalibrateConfig, *, out: str | None = None, force: bool = False, reporter: Reporter | None = None
) -> tuple[CalibrateResult, RunDirectory]:
    """Measure this machine, or read measured times, fit a device and write its file; or return the result of a finished run.

    Args:
        out: device file; `DEVICE_FILE` unless given.
        force: measure anew.
    Returns:
        The result, as in result.json, and the run directory, which also holds the report and all times.
    Raises:
        InputError: bad input; nothing is lost.
    """
    expect(CalibrateConfig, config)
    place = Path(DEVICE_FILE if out is None else out)

    @cache
    def checked() -> tuple[dict[str, Architecture], list[Row]]:
        _check_place(place)
        if config.measurements is not None:
            rows = read_rows(config.measurements)
            networks = _named(rows, config.measurements)
            check_layers(rows, networks)
            check_products(rows)
            return networks, rows
        return {name: dense_network(name) for name in config.architecture}, []

    def prepare(directory: RunDirectory, reporter: Reporter) -> Callable[[], dict[str, Any]]:
        networks, rows = checked()
        begun_here(directory.checkpoints)
        named = networks | companion_of(config, networks) if config.measurements is None else networks

        def work() -> dict[str, Any]:
            stages = Stages(directory.checkpoints)
            if config.measurements is None:
                few = config.rows <= _FEW_ROWS
                measurements = measure_machine(config, networks, stages, reporter, few=few)
            else:
                measurements = Measured(rows, [math.nan] * len(rows), 0.0, None, Path(config.measurements).name)
            reporter.line("fitting ...")
            machine = fit_machine(measurements.table, named.__getitem__, capacity_bytes=float(device_memory_bytes()))
            write_text(directory.path / "measurements.csv", rows_text(measurements.table))
            result = _result(config, measurements, machine, directory, stages)
            write_text(directory.path / "device.toml", str(result.device_file))
            result = dataclasses.replace(result, **_facts(directory.path / "device.toml"))
            return result.plain()

        return work

    page = lambda result_plain, path: write_calibrate_report(CalibrateResult.from_plain(result_plain), path)
    result_plain, directory = execute_run(
        "calibrate",
        config,
        prepare,
        check=checked,
        force=force,
        reporter=reporter,
        outputs=Outputs(_CONTENTS, page, _HEADLINE),
    )
    if config.measurements is None:
        begun_here(directory.checkpoints)  # a finished run of another machine lies where several share a folder
    _check_place(place)
    result = CalibrateResult.from_plain(result_plain)
    write_text(place, str(result.device_file))
    return result, directory


#: A run of so few rows takes fewer shapes of everything.
_FEW_ROWS = 128


def _check_place(place: Path) -> None:
    check_file_place(place, "--out")
    if place.suffix != ".toml":
        raise InputError(f"--out {str(place)!r} is no device file by its name; end it in .toml")
    try:
        there = place.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return
    if there.strip() and not there.startswith(_OURS):
        raise InputError(
            f"--out {str(place)!r} is there already and was not written by jaxspec calibrate; give another place"
        )


def _named(rows: Sequence[Row], measurements: str) -> dict[str, Architecture]:
    """The networks that measured rows name, by name."""
    names = dict.fromkeys(row.architecture for row in rows if row.architecture)
    try:
        return {name: resolve_architecture(name, None) for name in names}
    except InputError as error:
        raise InputError(f"measurements {measurements!r}, column architecture: {error}") from error


def dense_network(name: str) -> Architecture:
    """A network of dense layers, by its name in the catalog or its config.json.

    Raises:
        InputError: there is none, or its layers are others.
    """
    network = resolve_architecture(name, None)
    others = (network.num_moe_layers, network.kv_lora_rank, network.num_window_layers, network.num_linear_layers)
    if any(map(float, others)):
        raise InputError(
            f"architecture {name!r} has experts, latent or linear attention, or windows; calibrate measures shapes of dense "
            "networks: give one, the device then prices others too"
        )
    return network


def _result(
    config: CalibrateConfig, measurements: Measured, machine: Machine, directory: RunDirectory, stages: Stages
) -> CalibrateResult:
    noise = measurements.noise
    doubts = doubts_of(machine, measurements.table)
    origin = "measured times" if noise is None else "measured by jaxspec calibrate"
    if noise is not None and not noise.believed:
        doubts.insert(0, noise.words)
    small = {row.part: row.seconds for row in measurements.table if row.part in ("turn", "launch")}
    title = measured_title() if noise is not None else f"Device of {measurements.name}"
    return CalibrateResult(
        origin=origin,
        device_title=title,
        architecture=", ".join(dict.fromkeys(row.architecture for row in measurements.table if row.architecture))
        or None,
        device="device.toml",
        statement=_statement(measurements),
        pays=given(noise is None or noise.believed),
        device_file=device_text(machine, title, tuple(doubts), origin, capacity=SYSTEM if noise else _NOT_TOLD),
        noise=None if noise is None else _seen(noise),
        parts=[_part(fit, machine) for fit in machine.fits],
        row_steps=[
            RowStep(
                weight_bits=bits,
                weights=measured(list(one.costs.weights)),
                rows=measured(list(one.costs.rows)),
                factors=measured([list(row) for row in one.costs.factors]),
            )
            for bits, one in sorted(machine.products.items(), reverse=True)
        ],
        measurements=_times(measurements, machine),
        step_error=_step_error(measurements, machine),
        launch_s=measured(small.get("launch")),
        turn_s=measured(small.get("turn")),
        engine_terms=calibrated(machine.parts["cycles"].estimates if "cycles" in machine.parts else None),
        doubts=doubts,
        compile_s=measured(measurements.compile_s),
        measured_with={} if noise is None else attempt(),
        inputs=directory.inputs,
        timing_s={stage: measured(seconds) for stage, seconds in stages.timing_s.items()},
        versions=versions(),
        notes=doubts if noise else [*doubts, _OTHER_MEMORY],
    )


def _statement(measurements: Measured) -> str:
    count = len(measurements.table)
    return (
        f"{count} times measured on {measurements.name}"
        if measurements.noise
        else f"{count} times of {measurements.name}"
    )


def _facts(path: Path) -> dict[str, Any]:
    """What a report says of the device, read back from its file: the file is then known to be one."""
    facts = device_facts(str(path))
    return {name: facts[name] for name in ("assumptions", "device_data")}


def _seen(noise: Any) -> SeenNoise:
    numbers = {name: measured(value) for name, value in dataclasses.asdict(noise).items()}
    return SeenNoise(**numbers, words=noise.words)


def _part(fit: PartFit, machine: Machine) -> FittedPart:
    interval = fit.interval or {}
    smooth = machine.products[fit.bits].smooth_error if fit.part == "products" else None
    return FittedPart(
        part=fit.part,
        weight_bits=fit.bits,
        times=measured(len(fit.rows)),
        numbers=calibrated(fit.estimates),
        standard_errors=calibrated(
            {name: error for name, error in fit.standard_errors.items() if math.isfinite(error)}
        ),
        at_bound=list(fit.at_bound),
        held_out_mean=_known(fit.errors.mean),
        held_out_median=_known(fit.errors.median),
        held_out_largest=_known(fit.errors.largest),
        low=calibrated(interval.get("low")),
        high=calibrated(interval.get("high")),
        covered=measured(interval.get("covered")),
        smooth_mean=_known(smooth),
    )


def _known(value: float | None) -> Quantity[float]:
    return measured(None if value is None or not math.isfinite(value) else value)


def _times(measurements: Measured, machine: Machine) -> list[MeasuredTime]:
    predicted: dict[int, float] = dict(zip(machine.step_rows.tolist(), machine.step_s.tolist(), strict=True))
    held: dict[int, float] = {}
    for fit in machine.fits:
        held |= dict(zip(fit.rows.tolist(), fit.held_out.tolist(), strict=True))
        if fit.part != "steps":
            predicted |= dict(zip(fit.rows.tolist(), fit.predicted.tolist(), strict=True))
    return [
        MeasuredTime(
            part=row.part,
            what=described(row),
            weight_bits=_finite(row.weight_bits),
            rows=_finite(row.rows),
            inner=_finite(row.inner),
            outer=_finite(row.outer),
            seconds=measured(row.seconds) if measurements.noise else given(row.seconds),
            spread=measured(_finite(spread)),
            predicted_s=calibrated(predicted.get(place)),
            held_out_s=_known(held.get(place)),
        )
        for place, (row, spread) in enumerate(zip(measurements.table, measurements.spreads, strict=True))
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _step_error(measurements: Measured, machine: Machine) -> Quantity[float]:
    if not len(machine.step_rows):
        return measured(None)
    pairs = zip(machine.step_s, machine.step_rows, strict=True)
    return measured(
        float(sum(abs(one / measurements.table[i].seconds - 1) for one, i in pairs) / len(machine.step_rows))
    )
