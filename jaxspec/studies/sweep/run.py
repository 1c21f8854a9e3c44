"""`jaxspec sweep`: every combination of the axes through one compiled program, to Parquet."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax

from hwmodels.analysis.sensitivity import leaf_names
from jaxspec.compress.knobs import knob_defaults
from jaxspec.compress.schemes import find_scheme
from jaxspec.errors import InputError
from jaxspec.report.assumptions import architecture_data, device_facts
from jaxspec.report.save import save_figure
from jaxspec.results.network_results import PricedNumber
from jaxspec.runs.carrying_out import carry_out
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.progress import Reporter
from jaxspec.settings import CommonConfig, build_config, expect
from jaxspec.settings.knobs import EXPERT_POOL
from jaxspec.settings.parallel import PARALLEL
from jaxspec.studies.expert_pricing import placed, resolve_experts
from jaxspec.studies.kernel_notes import kernel_notes
from jaxspec.studies.measured.pricing import resolve_pricing
from jaxspec.studies.sweep.axes import axis_values, check_numbers, number_rules
from jaxspec.studies.sweep.config import SweepConfig, shard_of
from jaxspec.studies.sweep.evaluating import footprint_of
from jaxspec.studies.sweep.figures import pareto_figure
from jaxspec.studies.sweep.grid import Grid
from jaxspec.studies.sweep.pareto import ParetoFront
from jaxspec.studies.sweep.parts import drop_parts, join_files, part_ranges, write_part
from jaxspec.studies.sweep.points_file import COLUMNS, OF_THE_DEVICE, POINTS_FILE, check_points, points_schema
from jaxspec.studies.sweep.result import FrontAxes, ParetoPoints, SweepResult

__all__ = ["HEADLINE", "SweepPlan", "join_points", "plan_sweep", "sweep"]

#: Main numbers of a result, for `jaxspec runs`.
HEADLINE = (
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

    Returns:
        what result.json holds: numbers of points, the best ones, the Pareto front.
    Raises:
        InputError: an unknown name, or a directory that belongs to another sweep.
    """

    planned = cache(lambda: plan_sweep(config))

    def prepare(directory: RunDirectory, reporter: Reporter) -> Callable[[], dict[str, Any]]:
        return lambda: _run(config, planned(), directory, reporter).plain()

    expect(SweepConfig, config)
    found, directory = carry_out(
        "sweep",
        config,
        prepare,
        check=planned,
        out=out,
        force=force,
        reporter=reporter,
        contents=(POINTS_FILE,),
        headline=HEADLINE,
    )
    check_points(directory.path)  # a finished one may be damaged since
    drop_parts(_parts_folder(directory.path))
    return SweepResult.from_plain(found)


@dataclasses.dataclass(frozen=True)
class SweepPlan:
    """A sweep whose names and numbers are known to be right."""

    grid: Grid
    front: ParetoFront


def plan_sweep(config: SweepConfig) -> SweepPlan:
    """Names of devices and networks resolved, axes made. Raises InputError: one that cannot be used."""
    axes = {name: axis_values(config, name) for name in config.axes}
    pairs = [(shape, device) for shape in config.architecture for device in config.device]
    bases = [_base(config, shape, device) for shape, device in pairs]
    front = ParetoFront(**vars(config.pareto))
    front.check_columns((*axes, *COLUMNS))
    return SweepPlan(Grid(axes, pairs, bases, config.max_draft_length), front)


def _run(config: SweepConfig, plan: SweepPlan, directory: RunDirectory, reporter: Reporter) -> SweepResult:
    """Evaluate what is not there yet, part by part, then join the parts."""
    schema = points_schema(tuple(plan.grid.axes), config.scheme)
    chunks = plan.grid.shard(*shard_of(config.shard))
    parts = part_ranges(_parts_folder(directory.path), chunks)
    with reporter.bar("design points, chunks", len(chunks)) as bar:
        for path, part in parts.items():
            if path.exists():
                bar.jump(part.stop - chunks.start, "kept from before")
            else:
                write_part(path, schema, plan.grid.columns(part), bar.advance)
    counts = {path: plan.grid.points_of(part) for path, part in parts.items()}
    return join_points(config, plan, counts, directory, reporter)


def _parts_folder(run: Path) -> Path:
    return run / "checkpoints" / "points"


def join_points(
    config: SweepConfig, plan: SweepPlan, sources: dict[Path, int], directory: RunDirectory, reporter: Reporter
) -> SweepResult:
    """The file of all points, the figure and the result, from files that hold them one after the other.

    Args:
        sources: file -> number of its points.
    Raises:
        InputError: a file that cannot be read, or has another number of points.
    """
    for path, count in sources.items():
        if (found := check_points(path)) != count:
            raise InputError(
                f"{str(path)!r} has {found:,} points instead of {count:,}; start its sweep anew with --force"
            )
    grid, front, folder = plan.grid, plan.front, directory.path
    chunks = grid.shard(*shard_of(config.shard))
    schema = points_schema(tuple(grid.axes), config.scheme)
    with reporter.bar("joining the points, chunks", len(chunks)) as bar:
        for columns in join_files(sources, schema, folder / POINTS_FILE):
            front.add(columns)
            bar.advance()
    pairs, bases = grid.pairs, grid.bases
    figure = pareto_figure(front)
    assert figure is not None
    save_figure(figure, folder / "figures" / "pareto.png")
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
        pareto=ParetoPoints(axes=FrontAxes(**front.axes), points=front.rows()),
        best=front.best,
        status={"axes": "input", **dict.fromkeys(OF_THE_DEVICE, "input"), "everything else": "predicted"},
        notes=_notes(grid),
        directory=str(folder),
        inputs=directory.inputs,
        shard=config.shard,
    )


def _priced(config: SweepConfig, part: str, data: dict[str, dict[str, Any]]) -> dict[str, PricedNumber]:
    """Numbers of a part of the design points, those of [set] in place of its own."""
    own = {
        name.removeprefix(f"{part}."): {"value": value, "source": "[set]", "status": "input"}
        for name, value in config.set.items()
        if name.startswith(f"{part}.")
    }
    return {name: PricedNumber(**number) for name, number in (data | own).items()}


def _notes(grid: Grid) -> list[str]:
    """What a reader should know of the devices' kernels at the widths that the axes take."""
    notes = []
    for (_, device), base in zip(grid.pairs, grid.bases, strict=True):
        bits = {name: grid.axes.get(f"footprint.{name}", value) for name, value in base["footprint"].items()}
        found = kernel_notes(base["device"], [footprint_of(bits)])
        notes += [f"{device}: {note}" for note in found["notes"]]
    return list(dict.fromkeys(notes))


def _common(config: SweepConfig, architecture: str) -> CommonConfig:
    own = {name: getattr(config, name) for name in (*PARALLEL, "engine", "weight_format")}
    given = {"architecture": architecture, **own}
    return build_config(CommonConfig, {name: value for name, value in given.items() if value is not None})


def _base(config: SweepConfig, architecture: str, device: str) -> dict[str, Any]:
    """The tree whose leaves axes are named by, at its values before any axis changes them."""
    varied = any(name.startswith("device.group.") for name in (*config.axes, *config.set))
    pricing = resolve_pricing(_common(config, architecture), device, None, together=varied)
    pricing = placed(pricing, config, device)
    scheme = find_scheme(config.scheme)
    knobs = knob_defaults(scheme)
    experts = resolve_experts(config, pricing.architecture, architecture, knobs.get(EXPERT_POOL.name, 1.0))
    if experts.pool_fits and "draft.expert_pool" in {*config.axes, *config.set}:
        raise InputError("pool_fits is true and draft.expert_pool is an axis or set; leave one of them out")
    check_numbers(config, number_rules(pricing.architecture, pricing.device), device)
    read = scheme.expected_footprint(knobs)
    base = {
        "acceptance": {"alpha_token": 0.8},
        "architecture": pricing.architecture,
        "device": pricing.device,
        "draft": {} if experts.pool_fits else {"expert_pool": experts.pool_share},
        "footprint": {
            "draft_kv_bits": float(read.draft_kv_bits),
            "draft_weight_bits": float(read.draft_weight_bits["q"]),
            "target_kv_bits": float(read.target_kv_bits),
            "target_weight_bits": float(read.target_weight_bits["q"]),
            "expert_bits": experts.bits,
        },
        "routing": experts.routing,
        "workload": pricing.workload,
    }
    leaves, treedef = jax.tree.flatten(base)
    return treedef.unflatten([config.set.get(name, leaf) for name, leaf in zip(leaf_names(base), leaves, strict=True)])
