"""`jaxspec calibrate`: from the machine at hand, or from times that a user brings, to a device file."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hwmodels import Architecture
from jaxspec.errors import InputError
from jaxspec.files import write_text
from jaxspec.output_places import check_file_place
from jaxspec.report.assumptions import device_facts
from jaxspec.results import Quantity, calibrated, given, measured
from jaxspec.results.network_results import PricedNumber
from jaxspec.runs.carrying_out import carry_out
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.machine import device_memory_bytes, measured_title
from jaxspec.runs.progress import Reporter
from jaxspec.runs.provenance import attempt, versions
from jaxspec.runs.stages import Stages
from jaxspec.settings import expect
from jaxspec.studies.calibrate.config import CalibrateConfig
from jaxspec.studies.calibrate.device_file import SYSTEM, described, device_text, doubts_of
from jaxspec.studies.calibrate.fits import Machine, PartFit, check_layers, check_products, fit_machine
from jaxspec.studies.calibrate.measuring import Measured, begun_here, measure_machine
from jaxspec.studies.calibrate.programs import companion_of
from jaxspec.studies.calibrate.result import CalibrateResult, FittedPart, MeasuredTime, RowStep, SeenNoise
from jaxspec.studies.calibrate.table import Row, read_rows, rows_text
from jaxspec.studies.calibrate.view import write_calibrate_report
from jaxspec.studies.measured.pricing import resolve_architecture

__all__ = ["DEVICE_FILE", "calibrate", "dense_network"]

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
    config: CalibrateConfig,
    *,
    out: str | None = None,
    force: bool = False,
    reporter: Reporter | None = None,
) -> tuple[CalibrateResult, RunDirectory]:
    """Measure this machine, or read measured times, fit a device and write its file; or return what a finished run found.

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
                found = measure_machine(config, networks, stages, reporter, few=few)
            else:
                found = Measured(rows, [math.nan] * len(rows), 0.0, None, Path(config.measurements).name)
            reporter.line("fitting ...")
            machine = fit_machine(found.table, named.__getitem__, capacity_bytes=float(device_memory_bytes()))
            write_text(directory.path / "measurements.csv", rows_text(found.table))
            result = _result(config, found, machine, directory, stages)
            write_text(directory.path / "device.toml", str(result.device_file))
            result = dataclasses.replace(result, **_facts(directory.path / "device.toml"))
            return result.plain()

        return work

    found, directory = carry_out(
        "calibrate",
        config,
        prepare,
        check=checked,
        force=force,
        reporter=reporter,
        contents=_CONTENTS,
        page=lambda found, path: write_calibrate_report(CalibrateResult.from_plain(found), path),
        headline=_HEADLINE,
    )
    if config.measurements is None:
        begun_here(directory.checkpoints)  # a finished run of another machine lies where several share a folder
    _check_place(place)
    result = CalibrateResult.from_plain(found)
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
    found = resolve_architecture(name, None)
    others = (found.num_moe_layers, found.kv_lora_rank, found.num_window_layers, found.num_linear_layers)
    if any(map(float, others)):
        raise InputError(
            f"architecture {name!r} has experts, latent or linear attention, or windows; calibrate measures shapes of dense "
            "networks: give one, the device then prices others too"
        )
    return found


def _result(
    config: CalibrateConfig, found: Measured, machine: Machine, directory: RunDirectory, stages: Stages
) -> CalibrateResult:
    noise = found.noise
    doubts = doubts_of(machine, found.table)
    origin = "measured times" if noise is None else "measured by jaxspec calibrate"
    if noise is not None and not noise.believed:
        doubts.insert(0, noise.words)
    small = {row.part: row.seconds for row in found.table if row.part in ("turn", "launch")}
    title = measured_title() if noise is not None else f"Device of {found.name}"
    return CalibrateResult(
        origin=origin,
        device_title=title,
        architecture=", ".join(dict.fromkeys(row.architecture for row in found.table if row.architecture)) or None,
        device="device.toml",
        statement=_statement(found),
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
        measurements=_times(found, machine),
        step_error=_step_error(found, machine),
        launch_s=measured(small.get("launch")),
        turn_s=measured(small.get("turn")),
        engine_terms=calibrated(machine.parts["cycles"].estimates if "cycles" in machine.parts else None),
        doubts=doubts,
        compile_s=measured(found.compile_s),
        measured_with={} if noise is None else attempt(),
        inputs=directory.inputs,
        timing_s={stage: measured(seconds) for stage, seconds in stages.timing_s.items()},
        versions=versions(),
        notes=doubts if noise else [*doubts, _OTHER_MEMORY],
    )


def _statement(found: Measured) -> str:
    count = len(found.table)
    return f"{count} times measured on {found.name}" if found.noise else f"{count} times of {found.name}"


def _facts(path: Path) -> dict[str, Any]:
    """What a report says of the device, read back from its file: the file is then known to be one."""
    facts = device_facts(str(path))
    return {
        "assumptions": facts["assumptions"],
        "device_data": {name: PricedNumber(**number) for name, number in facts["device_data"].items()},
    }


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


def _times(found: Measured, machine: Machine) -> list[MeasuredTime]:
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
            seconds=measured(row.seconds) if found.noise else given(row.seconds),
            spread=measured(_finite(spread)),
            predicted_s=calibrated(predicted.get(place)),
            held_out_s=_known(held.get(place)),
        )
        for place, (row, spread) in enumerate(zip(found.table, found.spreads, strict=True))
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _step_error(found: Measured, machine: Machine) -> Quantity[float]:
    if not len(machine.step_rows):
        return measured(None)
    pairs = zip(machine.step_s, machine.step_rows, strict=True)
    return measured(float(sum(abs(one / found.table[i].seconds - 1) for one, i in pairs) / len(machine.step_rows)))
