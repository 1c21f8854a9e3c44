"""`jaxspec sweep`: every combination of the axes through one compiled program, to Parquet."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from hwmodels import Device
from hwmodels.analysis.uncertainty.kernel_errors import times_have_errors
from hwmodels.compute.roofline import unit_of
from jaxspec.compress.schemes import find_scheme
from jaxspec.errors import InputError
from jaxspec.report.assumptions import architecture_data, device_facts
from jaxspec.results.network_results import PricedNumber
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.execute import Outputs, Prepare, execute_run
from jaxspec.runs.inputs import changed_inputs
from jaxspec.runs.processes import ONE_PROCESS, Processes, shared_processes
from jaxspec.runs.progress import Reporter
from jaxspec.runs.run_index import check_settings_file, find_run
from jaxspec.settings import expect
from jaxspec.settings.base import to_toml
from jaxspec.settings.coercion import as_path
from jaxspec.studies.design_tree import CONTEXT, footprint_of, knob_name
from jaxspec.studies.engine_pricing import engine_notes, engine_status, engine_used
from jaxspec.studies.feasibility import kernel_notes
from jaxspec.studies.given_acceptance import law_facts, resolve_acceptance
from jaxspec.studies.headline_intervals import coverage_in_words, interval_notes
from jaxspec.studies.release import release_notes
from jaxspec.studies.sweep.config import SweepConfig, read_sweep_config, shard_of
from jaxspec.studies.sweep.grid import Grid, SweepPlan, plan_sweep
from jaxspec.studies.sweep.pareto import ParetoFront
from jaxspec.studies.sweep.points_file import (
    POINTS_FILE,
    check_counts,
    check_points,
    drop_parts,
    join_files,
    part_ranges,
    write_part,
)
from jaxspec.studies.sweep.result import FrontAxes, ParetoPoints, SweepResult
from jaxspec.studies.sweep.view import write_sweep_report

#: Odd, so that no product loses bits: 2^64 over the golden ratio, as in Fibonacci hashing (Knuth, vol. 3, sec. 6.4).
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class InertAxes:
    """Axes with several values all of which have the same results.

    A number stands for the results of a point and where it lies on the other axes. Its sum over all points with a value of an
    axis is the same for every value where no result depends on the axis; it wraps around in 64 bits, so that points may come in
    any order.
    """

    def __init__(self, axes: Iterable[str]):
        self._axes = tuple(axes)
        self._sums: dict[str, dict[float, int]] = {name: {} for name in self._axes}
        self._first: dict[str, tuple[int, int]] = {}

    def add(self, columns: Mapping[str, np.ndarray]) -> None:
        """Take in more points. Args: columns: axes, results, and names, which are left out: "point"."""
        if not self._sums:
            return
        results = _mixed(values for name, values in columns.items() if name not in self._axes and _is_number(values))
        own = {name: _mixed([columns[name]]) for name in self._axes}
        place = np.sum(list(own.values()), axis=0, dtype=np.uint64)
        for name, sums in list(self._sums.items()):
            values, which = _distinct(columns[name])
            others = place - own[name]
            where = _sums_by(which, others, len(values))
            by_value = _sums_by(which, _mixed([others, results]), len(values))
            first = self._first.setdefault(name, (where[0], by_value[0]))
            if any(one[0] == first[0] and one != first for one in zip(where, by_value, strict=True)):
                del self._sums[name]  # the same points but for this axis, and other results: soon known of most axes
                continue
            for value, one in zip(values.tolist(), by_value, strict=True):
                sums[value] = (sums.get(value, 0) + one) % 2**64

    @property
    def remarks(self) -> list[str]:
        """A sentence, where there are any among all points so far."""
        inert = [name for name, sums in self._sums.items() if len(sums) > 1 and len(set(sums.values())) == 1]
        return [f"no result depends on {', '.join(inert)} here: all values give the same points"] if inert else []


def _is_number(values: np.ndarray) -> bool:
    return values.dtype.kind in "bif"


def _mixed(columns: Iterable[np.ndarray]) -> np.ndarray:
    """A number of 64 bits for each point, " point". Args: columns: numbers, or what this returned."""
    mixed = np.uint64(0)
    for values in columns:
        bits = values if values.dtype == np.uint64 else np.asarray(values, np.float64).view(np.uint64)
        mixed = (mixed ^ bits) * _MULTIPLIER
        mixed = mixed ^ (mixed >> np.uint64(29))
    return np.asarray(mixed)


def _sums_by(which: np.ndarray, points: np.ndarray, count: int) -> list[int]:
    """Sums of points with the same value, in 64 bits. Args: which: number of each point's value, below `count`."""
    sums = np.zeros(count, np.uint64)
    np.add.at(sums, which, points)
    return sums.tolist()


def _distinct(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values that occur, and which of them each point has; most axes have one in a piece."""
    if np.all(values == values[0]):
        return values[:1], np.zeros(len(values), np.int64)
    return np.unique(values, return_inverse=True)


#: Chunks of points that are priced again without a number. Of most numbers the first one has other results, which ends it.
_MOST_CHUNKS = 8


def inert_settings(config: SweepConfig, plan: SweepPlan) -> list[str]:
    """A sentence for each number of [set] that changes no result.

    Of a number that is the same without [set], as it may be stated on purpose, twice and half of it are tried.

    Args:
        plan: of the same configuration.
    """
    grid, notes = plan.grid, []
    chunks = _spread(grid.shard(*shard_of(config.shard)))
    count = sum(grid.points_of(range(chunk, chunk + 1)) for chunk in chunks)
    points = "1 point is" if count == 1 else f"{count:,} points are"
    for name, value in config.set.items():
        unchanged = _without_effect(config, grid, chunks, name, value)
        if unchanged is not None:
            notes.append(f"no result depends on set.{name} here: {points} the same {unchanged}")
    return notes


def _without_effect(config: SweepConfig, grid: Grid, chunks: Sequence[int], name: str, value: float) -> str | None:
    """With what in place of a number all results are the same, in words; None where some depend on it."""
    rest = {key: number for key, number in config.set.items() if key != name}
    without = [_with_numbers(config, grid, chunk, rest) for chunk in chunks]
    if None not in without:  # a number of a group that nothing else makes, or one that the others need, stays
        if not _same_results(grid, without, chunks):
            return None
        if not all(_alike(grid.bases, other.bases) for other in without if other is not None):
            return "without it"
    tried = []
    for number in (2.0 * value, 0.5 * value) if value else (1.0,):
        others = [_with_numbers(config, grid, chunk, rest | {name: number}) for chunk in chunks]
        if None in others:  # its rule does not allow that
            continue
        if not _same_results(grid, others, chunks):
            return None
        tried.append(f"{number:g}")
    return f"with {' and '.join(tried)} in its place" if tried else None


def _with_numbers(config: SweepConfig, grid: Grid, chunk: int, numbers: Mapping[str, float]) -> Grid | None:
    """The grid with other numbers in [set] for the network and the device of a chunk; None where they cannot be.

    None too where one program could not price both.
    """
    pair = chunk // grid.chunks_per_pair
    shape, device = grid.pairs[pair]
    try:
        plan = plan_sweep(dataclasses.replace(config, architecture=(shape,), device=(device,), set=dict(numbers)))
    except InputError:
        return None
    base = plan.grid.bases[0]
    if jax.tree.structure(base) != jax.tree.structure(grid.bases[pair]):
        return None
    bases = [base if place == pair else own for place, own in enumerate(grid.bases)]
    return dataclasses.replace(grid, bases=bases, derived=plan.grid.derived)


def _spread(chunks: range) -> list[int]:
    """Some of the chunks, from the first to the last; all where they are few."""
    return [chunks[round(place)] for place in np.linspace(0, len(chunks) - 1, min(len(chunks), _MOST_CHUNKS))]


def _alike(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether two lists of trees hold the same numbers."""
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) for a, b in leaves)


def _same_results(grid: Grid, others: Sequence[Grid | None], chunks: Sequence[int]) -> bool:
    """Whether the points of each chunk are the same on its other grid, up to the first chunk in which they are not."""
    for chunk, other in zip(chunks, others, strict=True):
        assert other is not None
        (first,), (second,) = (list(one.columns(range(chunk, chunk + 1))) for one in (grid, other))
        numbers = [name for name, values in first.items() if values.dtype.kind in "bif"]
        if not all(np.array_equal(first[name], second[name], equal_nan=True) for name in numbers):
            return False
    return True


def device_remarks(grid: Grid, engine: str | None) -> list[str]:
    """What a reader should know of the devices' kernels at the widths that the axes take."""
    notes = []
    derived = {name: np.ravel(entries) for _, table in grid.derived.tables for name, entries in table.items()}
    for (name, device), base in zip(grid.pairs, grid.bases, strict=True):
        varied = grid.axes | derived
        bits = {width: varied.get(f"footprint.{width}", value) for width, value in base["footprint"].items()}
        together = _with_counts(base["device"], varied)
        batches = [np.asarray(varied.get("workload.batch", base["workload"].batch))]
        network, experts = base["architecture"], "architecture.num_experts"
        network = dataclasses.replace(network, num_experts=varied.get(experts, network.num_experts))
        context = varied.get(CONTEXT, np.asarray(base["workload"].context_tokens))
        kernel_facts = kernel_notes(
            together,
            [footprint_of(bits)],
            batches=batches,
            architecture=network,
            texts={name: float(np.max(context)) + 1.0},
        )
        mixture = bool(np.any(np.asarray(network.num_experts) > 0))
        growth = unit_of(base["device"]).growth_remarks(memories=len(base["device"].tiers), experts=mixture)
        notes += [
            f"{device}: {note}" for note in (*kernel_facts["notes"], *growth, *interval_notes(base["device"], engine))
        ]
    return list(dict.fromkeys(notes))


def _with_counts(device: Device, varied: dict[str, np.ndarray]) -> Device:
    """The device with all that axes say of how many of it share the work."""
    if device.group is None:
        return device
    given = {field.name: varied.get(f"device.group.{field.name}") for field in dataclasses.fields(device.group)}
    group = dataclasses.replace(device.group, **{name: counts for name, counts in given.items() if counts is not None})
    return dataclasses.replace(device, group=group)


def unheard_knobs(config: SweepConfig, plan: SweepPlan) -> list[str]:
    """Knobs that change what is read and not what is accepted."""
    heard = () if plan.law is None else plan.law.law.names
    knobs = [name for name in config.axes if knob_name(name, find_scheme(config.scheme)) is not None]
    deaf = [name for name in knobs if name.removeprefix("draft.") not in heard]
    return (
        [f"acceptance does not depend on {', '.join(deaf)}: give points of it in a table [acceptance]"] if deaf else []
    )


def unknown_columns(front: ParetoFront) -> list[str]:
    """Why there is no front, or columns of it that some points have no number of, as energy of a device without energy data."""
    if not front.fitting:
        return [
            "no point fits its memory: compare held_bytes with capacity_bytes in sweep.parquet, and take more memory, fewer "
            "bits, a smaller batch or a shorter context"
        ]
    return [
        f"{name} is not known for {count:,} of the {front.fitting:,} points that fit, and none of these is on the front: "
        "take another column, or a device whose data give it"
        for name, count in front.unknown.items()
        if count
    ]


Found = TypeVar("Found")


#: Main numbers of a result, for `jaxspec runs`.
_HEADLINE = (
    "points",
    "points_that_fit",
    "best.tokens_per_s.tokens_per_s",
    "best.speedup_vs_bf16_ar.speedup_vs_bf16_ar",
)


def sweep(
    config: SweepConfig, *, out: str | Path | None = None, force: bool = False, reporter: Reporter | None = None
) -> SweepResult:
    """Evaluate a sweep into its run directory: sweep.parquet, result.json and a page with its figure; or show a finished one.

    Where `jax.distributed` runs, its processes share the points: all call this with the same settings and a directory that
    all of them see. Process 0 joins the points; every process gets the result.

    Returns:
        what result.json holds: numbers of points, the best ones, the Pareto front.
    Raises:
        InputError: an unknown name, or a directory that belongs to another sweep.
    """

    planned, processes = cache(lambda: plan_sweep(config)), shared_processes()

    def prepare(directory: RunDirectory, reporter: Reporter) -> Callable[[], dict[str, Any]]:
        return lambda: _run(config, planned(), directory, reporter, processes)

    expect(SweepConfig, config)
    result, directory = carry_out_sweep(
        config, prepare, planned, out=out, force=force, reporter=reporter, processes=processes
    )
    if processes.owns:
        check_points(directory.path)  # a finished one may be damaged since
        drop_parts(_parts_folder(directory.path))
    return result


def carry_out_sweep(
    config: SweepConfig,
    prepare: Prepare,
    planned: Callable[[], object],
    *,
    out: str | Path | None,
    force: bool,
    reporter: Reporter | None,
    processes: Processes = ONE_PROCESS,
) -> tuple[SweepResult, RunDirectory]:
    """Begin, resume or reprint the run of a sweep; see `jaxspec.runs.execute.execute_run`.

    Args:
        planned: checks names and numbers.
    """
    asked: dict[str, Any] = {"check": planned, "out": out, "force": force, "reporter": reporter, "processes": processes}
    outputs = Outputs((POINTS_FILE,), write_sweep_report, _HEADLINE)
    result, directory = execute_run("sweep", config, prepare, outputs=outputs, **asked)
    return SweepResult.from_plain(result), directory


def _run(
    config: SweepConfig, plan: SweepPlan, directory: RunDirectory, reporter: Reporter, processes: Processes
) -> dict[str, Any]:
    """Evaluate what is not there yet, a process each n-th part of n; then process 0 joins the parts."""
    if processes.count > 1:
        reporter.line(f"{processes.count} processes share the points")
    schema, chunks = plan.grid.schema(config.scheme), plan.grid.shard(*shard_of(config.shard))
    parts = part_ranges(_parts_folder(directory.path), chunks)
    mine = list(parts)[processes.index :: processes.count]
    with reporter.bar("design points, chunks", sum(len(parts[path]) for path in mine)) as bar:
        if kept := sum(len(parts[path]) for path in mine if path.exists()):
            bar.jump(kept, "kept from before")
        for path in mine:
            if not path.exists():
                # Closed here: where a full disk stops it, the collector would end its threads from one of them.
                with contextlib.closing(plan.grid.columns(parts[path])) as columns:
                    write_part(path, schema, columns, bar.advance)

    def join() -> dict[str, Any]:
        if not processes.owns:
            return {}
        counts = {path: plan.grid.points_of(part) for path, part in parts.items()}
        check_counts(counts)
        return join_points(config, plan, counts, directory, reporter).plain()

    processes.broadcast(None)  # all parts are there
    return processes.all_or_raise(join)


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
            *dict.fromkeys(note for device in config.device for note in engine_notes(config.engine, device=device)),
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


def _status_of_engine(config: SweepConfig) -> dict[str, str]:
    """The status of what the engine adds, the weakest of the devices'; nothing where nobody knows it, so that none is added."""
    statuses = {engine_status(engine_used(config.engine, device)) for device in config.device}
    weakest = next((status for status in ("calibrated", "input") if status in statuses), None)
    return {} if weakest is None else {"engine": weakest}


def _priced(config: SweepConfig, part: str, data: dict[str, PricedNumber]) -> dict[str, PricedNumber]:
    """Numbers of a part of the design points, those of [set] in place of its own."""
    return data | {
        name.removeprefix(f"{part}."): PricedNumber(value=value, source="[set]", status="input")
        for name, value in config.set.items()
        if name.startswith(f"{part}.")
    }


def _intervals_in_words(grid: Grid) -> str | None:
    """What columns of intervals hold; None where there are none."""
    if not grid.has_intervals:
        return None
    calibrated = any(times_have_errors(base["device"]) for base in grid.bases)
    known = {"calibration": calibrated, "engine": any(grid.scatters)}
    return coverage_in_words([name for name, present in known.items() if present])


@dataclasses.dataclass(frozen=True)
class _Shard:
    path: Path
    number: int
    shards: int
    whole: SweepConfig
    inputs: dict[str, str]


def merge_sweeps(
    shards: Sequence[str | os.PathLike[str]],
    *,
    out: str | Path | None = None,
    force: bool = False,
    reporter: Reporter | None = None,
) -> SweepResult:
    """Join the run directories of all shards of a sweep into the run directory of the whole sweep.

    File and result are those of the sweep run at once, byte for byte but for the directory's name and times.

    Args:
        shards: run directories, each finished, in any order.
        out, force: of the whole sweep.
    Raises:
        InputError: a directory that is no finished shard, shards of different sweeps, one that is missing or there twice.
    """
    ordered = _in_order([_shard(as_path("shard", path)) for path in shards])
    config = ordered[0].whole
    planned = cache(lambda: plan_sweep(config))

    def prepare(directory: RunDirectory, reporter: Reporter) -> Callable[[], dict[str, Any]]:
        for shard in ordered:
            if changed := changed_inputs(shard.inputs, directory.inputs):
                raise InputError(
                    f"{', '.join(changed)} has changed since shard {str(shard.path)!r} was begun; run the shards again"
                )
        grid = planned().grid
        counts = [grid.points_of(grid.shard(shard.number, shard.shards)) for shard in ordered]
        sources = {shard.path / POINTS_FILE: count for shard, count in zip(ordered, counts, strict=True)}
        check_counts(sources)
        return lambda: join_points(config, planned(), sources, directory, reporter).plain()

    result, _ = carry_out_sweep(config, prepare, planned, out=out, force=force, reporter=reporter)
    return result


def _shard(path: str) -> _Shard:
    run = find_run(path)
    check_settings_file(run.path)
    config = read_sweep_config(run.path / "config.toml")
    if config.shard is None:
        raise InputError(f"run {path!r} is a whole sweep, not a shard; give the directories of jaxspec sweep --shard")
    if not run.finished:
        raise InputError(f"shard {path!r} is not finished; jaxspec runs resume {path} goes on with it")
    number, shards = shard_of(config.shard)
    return _Shard(run.path, number, shards, dataclasses.replace(config, shard=None), run.inputs)


def _in_order(shards: list[_Shard]) -> list[_Shard]:
    """All shards of one sweep, from the first to the last."""
    if not shards:
        raise InputError("no shard came; give the run directories of all shards")
    first, by_number = shards[0], {}
    for shard in shards:
        if to_toml(shard.whole) != to_toml(first.whole) or shard.shards != first.shards:
            raise InputError(
                f"{str(shard.path)!r} is a shard of another sweep than {str(first.path)!r}; merge those of one sweep"
            )
        if shard.number in by_number:
            other = by_number[shard.number].path
            raise InputError(f"shard {shard.number}/{shard.shards} came twice, {str(other)!r} and {str(shard.path)!r}")
        by_number[shard.number] = shard
    missing = [number for number in range(1, first.shards + 1) if number not in by_number]
    if missing:
        some = ", ".join(f"{number}/{first.shards}" for number in missing[:5])
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise InputError(f"{len(shards)} of {first.shards} shards came; missing are {some}{more}")
    return [by_number[number] for number in sorted(by_number)]
