"""`jaxspec sweep`: every combination of the axes through one compiled program, to Parquet."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from hwmodels.analysis.uncertainty.kernel_errors import times_have_errors
from jaxspec.compress.schemes import find_scheme
from jaxspec.report.assumptions import architecture_data, device_facts
from jaxspec.results.network_results import PricedNumber
from jaxspec.runs.carrying_out import Prepare, carry_out
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.helping import HelpedRun
from jaxspec.runs.processes import Processes, shared_processes
from jaxspec.runs.progress import Reporter
from jaxspec.settings import expect
from jaxspec.studies.acceptance_points import law_facts, resolve_acceptance
from jaxspec.studies.engine_pricing import engine_notes, engine_status, engine_used
from jaxspec.studies.headline_intervals import coverage_in_words
from jaxspec.studies.release import release_notes
from jaxspec.studies.sweep.config import SweepConfig, shard_of
from jaxspec.studies.sweep.figures import FRONT_FILE, draw_front
from jaxspec.studies.sweep.grid import Grid
from jaxspec.studies.sweep.inert_axes import InertAxes
from jaxspec.studies.sweep.inert_set import inert_settings
from jaxspec.studies.sweep.parts import check_counts, drop_parts, join_files, part_ranges, write_part
from jaxspec.studies.sweep.plan import SweepPlan, plan_sweep
from jaxspec.studies.sweep.points_file import POINTS_FILE, check_points
from jaxspec.studies.sweep.remarks import device_remarks, unheard_knobs, unknown_columns
from jaxspec.studies.sweep.result import FrontAxes, ParetoPoints, SweepResult
from jaxspec.studies.sweep.sharing import write_together

__all__ = ["carry_out_sweep", "join_points", "sweep"]

Found = TypeVar("Found")

#: Main numbers of a result, for `jaxspec runs`.
_HEADLINE = (
    "points",
    "points_that_fit",
    "best.tokens_per_s.tokens_per_s",
    "best.speedup_vs_bf16_ar.speedup_vs_bf16_ar",
)


def sweep(
    config: SweepConfig,
    *,
    out: str | Path | None = None,
    force: bool = False,
    reporter: Reporter | None = None,
) -> SweepResult:
    """Evaluate a sweep into its run directory: sweep.parquet, pareto.png, result.json. A finished one is reprinted.

    Where `jax.distributed` runs, its processes share the points: all call this with the same settings and a directory that
    all of them see. Process 0 owns the directory and joins the points; every process gets the result.

    Returns:
        what result.json holds: numbers of points, the best ones, the Pareto front.
    Raises:
        InputError: an unknown name, or a directory that belongs to another sweep.
    """

    planned = cache(lambda: plan_sweep(config))

    def prepare(directory: RunDirectory, reporter: Reporter) -> Callable[[], dict[str, Any]]:
        def work() -> dict[str, Any]:
            processes.meet()
            return _run(config, planned(), directory, reporter, processes).plain()

        return work

    expect(SweepConfig, config)
    processes = shared_processes()
    if processes.index:
        plan = _then_met(planned, processes)
        return _help(config, plan, processes, out=out, reporter=reporter or Reporter())
    whole = lambda: carry_out_sweep(config, prepare, planned, out=out, force=force, reporter=reporter)
    found, directory = _then_met(whole, processes)
    check_points(directory.path)  # a finished one may be damaged since
    drop_parts(_parts_folder(directory.path))
    return found


def _then_met(work: Callable[[], Found], processes: Processes) -> Found:
    """Meet the others after work that may have ended before it met them: a finished run, bad input."""
    try:
        found = work()
    except Exception:
        processes.meet()
        raise
    processes.meet()
    return found


def carry_out_sweep(
    config: SweepConfig,
    prepare: Prepare,
    planned: Callable[[], object],
    *,
    out: str | Path | None,
    force: bool,
    reporter: Reporter | None,
) -> tuple[SweepResult, RunDirectory]:
    """Begin, resume or reprint the run of a sweep; see `jaxspec.runs.carrying_out.carry_out`.

    Args:
        planned: checks names and numbers.
    """
    kept: dict[str, Any] = {
        "contents": (POINTS_FILE,),
        "headline": _HEADLINE,
        "page": draw_front,
        "page_file": FRONT_FILE,
    }
    asked: dict[str, Any] = {"check": planned, "out": out, "force": force, "reporter": reporter}
    found, directory = carry_out("sweep", config, prepare, **asked, **kept)
    return SweepResult.from_plain(found), directory


def _run(
    config: SweepConfig, plan: SweepPlan, directory: RunDirectory, reporter: Reporter, processes: Processes
) -> SweepResult:
    """Evaluate what is not there yet, part by part, then join the parts."""
    if processes.count > 1:
        reporter.line(f"{processes.count} processes share the points")
    parts = _evaluate(config, plan, directory.path, reporter, processes)
    counts = {path: plan.grid.points_of(part) for path, part in parts.items()}
    check_counts(counts)
    return join_points(config, plan, counts, directory, reporter)


def _evaluate(
    config: SweepConfig, plan: SweepPlan, run: Path, reporter: Reporter, processes: Processes
) -> dict[Path, range]:
    """File of each part -> its chunks, once all are there."""
    schema = plan.grid.schema(config.scheme)
    chunks = plan.grid.shard(*shard_of(config.shard))
    parts = part_ranges(_parts_folder(run), chunks)
    with reporter.bar("design points, chunks", len(chunks)) as bar:

        def tell(note: str) -> None:
            done = sum(len(part) for path, part in parts.items() if path.exists())
            if done > bar.done:
                bar.jump(done, note)

        def write(path: Path) -> None:
            tell("others' among them")
            write_part(path, schema, plan.grid.columns(parts[path]), bar.advance)

        tell("kept from before")
        write_together(list(parts), write, processes, over=lambda: (run / "result.json").exists())
    return parts


def _help(
    config: SweepConfig, plan: SweepPlan, processes: Processes, *, out: str | Path | None, reporter: Reporter
) -> SweepResult:
    """Evaluate points for process 0, which has begun the run, and return its result."""
    run = HelpedRun("sweep", config, processes, out=out)
    try:
        _evaluate(config, plan, run.path, reporter, processes)
    except FileNotFoundError:  # two wrote a part, and all of them are joined and gone by now
        if not run.finished:
            raise
    found = SweepResult.from_plain(run.result())
    drop_parts(_parts_folder(run.path))  # a part that was written twice may have come late
    return found


def _parts_folder(run: Path) -> Path:
    return run / "checkpoints" / "points"


def join_points(
    config: SweepConfig, plan: SweepPlan, sources: dict[Path, int], directory: RunDirectory, reporter: Reporter
) -> SweepResult:
    """The file of all points and the result, from files that hold them one after the other.

    Args:
        sources: file -> number of its points; see `check_counts`.
    Raises:
        InputError: a file that cannot be read.
    """
    grid, front, folder, inert = plan.grid, plan.front, directory.path, InertAxes(plan.grid.axes)
    chunks = grid.shard(*shard_of(config.shard))
    schema = grid.schema(config.scheme)
    with reporter.bar("joining the points, chunks", len(chunks)) as bar:
        for columns in join_files(sources, schema, folder / POINTS_FILE):
            front.add(columns)
            inert.add(columns)
            bar.advance()
    pairs, bases = grid.pairs, grid.bases
    return SweepResult(
        points=front.seen,
        points_that_fit=front.fitting,
        architecture_data={
            shape: _priced(config, "architecture", architecture_data(shape, base["architecture"]))
            for (shape, _), base in zip(pairs, bases, strict=True)
        },
        device_data={
            device: _priced(config, "device", device_facts(device, config, config)["device_data"])
            for device in config.device
        },
        columns=list(schema.names),
        pareto=ParetoPoints(
            axes=FrontAxes(**front.axes, group=front.group, facets=front.facets), count=front.count, points=front.rows()
        ),
        best=front.best,
        status={
            "axes": "input",
            **dict.fromkeys(grid.of_the_device, "input"),
            **_status_of_engine(config),
            "everything else": "predicted",
        },
        engine=engine_used(config.engine, config.device[0] if len(config.device) == 1 else None),
        interval_statement=_intervals_in_words(grid),
        notes=[
            *(note for name in dict.fromkeys(name for name, _ in grid.pairs) for note in release_notes(name)),
            *device_remarks(grid, config.engine),
            *_of_engine(config),
            *unheard_knobs(config, plan),
            *inert.remarks,
            *inert_settings(config, plan),
            *unknown_columns(front),
        ],
        directory=str(folder),
        inputs=directory.inputs,
        acceptance=_acceptance(config, plan),
        shard=config.shard,
    )


def _acceptance(config: SweepConfig, plan: SweepPlan) -> dict[str, Any] | None:
    """Origin and status of the acceptance of all points; None where it is an axis or set."""
    if plan.law is None and "acceptance.alpha_token" in {*config.axes, *config.set}:
        return None
    return law_facts(plan.law or resolve_acceptance(None, find_scheme(config.scheme)))


def _of_engine(config: SweepConfig) -> list[str]:
    """What the engine adds; a measured machine's file has its own terms."""
    return list(dict.fromkeys(note for device in config.device for note in engine_notes(config.engine, device=device)))


def _status_of_engine(config: SweepConfig) -> dict[str, str]:
    """The status of what the engine adds, the weakest of the devices'; nothing where nobody knows it, so that none is added."""
    found = {engine_status(engine_used(config.engine, device)) for device in config.device}
    weakest = next((status for status in ("calibrated", "input") if status in found), None)
    return {} if weakest is None else {"engine": weakest}


def _priced(config: SweepConfig, part: str, data: dict[str, dict[str, Any]]) -> dict[str, PricedNumber]:
    """Numbers of a part of the design points, those of [set] in place of its own."""
    own = {
        name.removeprefix(f"{part}."): {"value": value, "source": "[set]", "status": "input"}
        for name, value in config.set.items()
        if name.startswith(f"{part}.")
    }
    return {name: PricedNumber(**number) for name, number in (data | own).items()}


def _intervals_in_words(grid: Grid) -> str | None:
    """What columns of intervals hold; None where there are none."""
    if not grid.has_intervals:
        return None
    calibrated = any(times_have_errors(base["device"]) for base in grid.bases)
    known = {"calibration": calibrated, "engine": any(grid.scatters)}
    return coverage_in_words([name for name, present in known.items() if present])
