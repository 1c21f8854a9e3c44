"""`jaxspec sweep`: every combination of the axes through one compiled program, to Parquet."""

from __future__ import annotations

import dataclasses
import os
import time
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
from jaxspec.partial_files import living_parts
from jaxspec.report.assumptions import architecture_data, device_facts
from jaxspec.results.network_results import PricedNumber
from jaxspec.runs.carrying_out import Prepare, carry_out
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.helping import HelpedRun
from jaxspec.runs.inputs import changed_inputs
from jaxspec.runs.kept import find_run
from jaxspec.runs.processes import Processes, shared_processes
from jaxspec.runs.progress import Reporter
from jaxspec.runs.unchanged import check_settings_file
from jaxspec.settings import expect
from jaxspec.settings.coercion import as_path
from jaxspec.settings.toml import to_toml
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
from jaxspec.studies.sweep.view import FRONT_FILE, draw_front

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
            found = _sums_by(which, _mixed([others, results]), len(values))
            first = self._first.setdefault(name, (where[0], found[0]))
            if any(one[0] == first[0] and one != first for one in zip(where, found, strict=True)):
                del self._sums[name]  # the same points but for this axis, and other results: soon known of most axes
                continue
            for value, one in zip(values.tolist(), found, strict=True):
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
    found = np.uint64(0)
    for values in columns:
        bits = values if values.dtype == np.uint64 else np.asarray(values, np.float64).view(np.uint64)
        found = (found ^ bits) * _MULTIPLIER
        found = found ^ (found >> np.uint64(29))
    return np.asarray(found)


def _sums_by(which: np.ndarray, points: np.ndarray, count: int) -> list[int]:
    """Sums of points with the same value, in 64 bits. Args: which: number of each point's value, below `count`."""
    found = np.zeros(count, np.uint64)
    np.add.at(found, which, points)
    return found.tolist()


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
    grid, found = plan.grid, []
    chunks = _spread(grid.shard(*shard_of(config.shard)))
    count = sum(grid.points_of(range(chunk, chunk + 1)) for chunk in chunks)
    points = "1 point is" if count == 1 else f"{count:,} points are"
    for name, value in config.set.items():
        told = _without_effect(config, grid, chunks, name, value)
        if told is not None:
            found.append(f"no result depends on set.{name} here: {points} the same {told}")
    return found


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


#: Seconds between two looks at what others do.
POLL_S = 0.5


#: A part that has not grown for so many seconds is taken over; a first one waits for its program to compile.
SILENT_S = 60.0


def write_together(
    parts: Sequence[Path], write: Callable[[Path], None], processes: Processes, *, over: Callable[[], bool]
) -> None:
    """Write every part that is not there, until all are.

    Each process begins at another place and takes the next part that nobody writes. Two that take the same one in the same
    moment write the same bytes under the same name, so that this costs time and nothing else. A process that dies leaves its
    part to the others.

    Args:
        parts: files, in order.
        write: makes a part, whole or not at all.
        over: whether the parts are joined, after which they go.
    """
    start = processes.index * len(parts) // processes.count
    order = [*parts[start:], *parts[:start]]
    others, alone = _Others(), processes.count == 1
    while (left := [path for path in order if not path.exists()]) and not over():
        # A part whose writer is done by now has its name.
        free = next((path for path in left if alone or not (others.write(path) or path.exists())), None)
        if free is None:
            time.sleep(POLL_S)
        else:
            write(free)


class _Others:
    """What can be seen of other processes."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[object, float]] = {}

    def write(self, path: Path) -> bool:
        """Whether another process writes a part: it has begun, and what is there grows."""
        state = sorted(living_parts(path).items())
        if not state:
            return False
        now = time.monotonic()
        if self._seen.get(path, (None, now))[0] != state:
            self._seen[path] = state, now
        return now - self._seen[path][1] < SILENT_S


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
        found = kernel_notes(
            together,
            [footprint_of(bits)],
            batches=batches,
            architecture=network,
            texts={name: float(np.max(context)) + 1.0},
        )
        mixture = bool(np.any(np.asarray(network.num_experts) > 0))
        growth = unit_of(base["device"]).growth_remarks(memories=len(base["device"].tiers), experts=mixture)
        notes += [f"{device}: {note}" for note in (*found["notes"], *growth, *interval_notes(base["device"], engine))]
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
    found = _in_order([_shard(as_path("shard", path)) for path in shards])
    config = found[0].whole
    planned = cache(lambda: plan_sweep(config))

    def prepare(directory: RunDirectory, reporter: Reporter) -> Callable[[], dict[str, Any]]:
        for shard in found:
            if changed := changed_inputs(shard.inputs, directory.inputs):
                raise InputError(
                    f"{', '.join(changed)} has changed since shard {str(shard.path)!r} was begun; run the shards again"
                )
        grid = planned().grid
        counts = [grid.points_of(grid.shard(shard.number, shard.shards)) for shard in found]
        sources = {shard.path / POINTS_FILE: count for shard, count in zip(found, counts, strict=True)}
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


def _in_order(found: list[_Shard]) -> list[_Shard]:
    """All shards of one sweep, from the first to the last."""
    if not found:
        raise InputError("no shard came; give the run directories of all shards")
    first, by_number = found[0], {}
    for shard in found:
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
        raise InputError(f"{len(found)} of {first.shards} shards came; missing are {some}{more}")
    return [by_number[number] for number in sorted(by_number)]
