"""A grid of design points: its axes, its blocks, and the program that evaluates a block."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa

import hwmodels
from hwmodels import Architecture
from hwmodels.analysis.design_point import DesignPoint, design_point, leaf_names
from hwmodels.analysis.uncertainty.cycle_errors import chain_numbers
from hwmodels.analysis.uncertainty.kernel_errors import known_scatter, times_have_errors
from hwmodels.catalog import EntryError
from hwmodels.catalog.architecture_entries import checked_architecture
from hwmodels.numerics.fields import Rule
from hwmodels.speculation.chains import priced_chains
from jaxspec.compress.footprint_table import tabulate
from jaxspec.compress.knobs import knob_defaults
from jaxspec.compress.schemes import Scheme, find_scheme
from jaxspec.errors import InputError
from jaxspec.settings.knobs import EXPERT_POOL
from jaxspec.studies.design_tree import CONTEXT, case_of, check_value, design_tree, knob_name, number_rules
from jaxspec.studies.engine_pricing import engine_scatter
from jaxspec.studies.feasibility import check_positions
from jaxspec.studies.given_acceptance import FoundLaw, resolve_acceptance
from jaxspec.studies.sweep.config import Range, SweepConfig
from jaxspec.studies.sweep.pareto import ParetoFront
from jaxspec.studies.sweep.points_file import COLUMNS, INTERVAL_COLUMNS, OF_THE_DEVICE, points_schema


@dataclasses.dataclass(frozen=True)
class Blocks:
    """A block has one value of each axis before `divided`, up to `span` values of that one, and all values of those behind it.

    So what depends on some of the axes alone is computed once for their values, not once for each point.

    Attributes:
        shape: numbers of values of the axes, the last one changing fastest from point to point.
        divided: which axis.
        span: > 0.
    """

    shape: tuple[int, ...]
    divided: int
    span: int

    @property
    def block_shape(self) -> tuple[int, ...]:
        """Of a whole block, over `divided` and the axes behind it."""
        return (self.span, *self.shape[self.divided + 1 :])

    @property
    def count(self) -> int:
        """Number of blocks."""
        return math.prod(self.shape[: self.divided]) * self._pieces

    @property
    def _pieces(self) -> int:
        return -(-self.shape[self.divided] // self.span)

    def points_of(self, block: int) -> int:
        """Number of points of a block: the last one along `divided` may be short."""
        values = min(self.span, self.shape[self.divided] - block % self._pieces * self.span)
        return values * math.prod(self.shape[self.divided + 1 :])

    def places(self, block: int) -> list[np.ndarray]:
        """For each axis, which of its values the points of a block have.

        Returns:
            indices that broadcast to `block_shape`. What is missing to a whole block repeats the last value.
        """
        before, piece = divmod(block, self._pieces)
        rank = len(self.block_shape)
        first = np.unravel_index(before, self.shape[: self.divided]) if self.divided else ()
        along = np.minimum(piece * self.span + np.arange(self.span), self.shape[self.divided] - 1)
        behind = [np.arange(size) for size in self.shape[self.divided + 1 :]]
        inner = [values.reshape(-1, *[1] * (rank - 1 - i)) for i, values in enumerate([along, *behind])]
        return [*map(np.asarray, first), *inner]


def blocks_of(shape: Sequence[int], most: int) -> Blocks:
    """Blocks of at most `most` points, as large as whole axes and nearly equal pieces of one allow.

    Args:
        shape: numbers of values of one axis or more.
        most: > 0.
    """
    divided, behind = len(shape) - 1, 1
    while divided and behind * shape[divided] <= most:
        behind *= shape[divided]
        divided -= 1
    pieces = -(-shape[divided] // (most // behind))
    return Blocks(tuple(shape), divided, -(-shape[divided] // pieces))


#: Networks of a sweep that are looked at before it begins: a second's worth.
_MOST_NETWORKS = 20_000


def axis_values(config: SweepConfig, name: str) -> np.ndarray:
    """Values of an axis, float64."""
    axis = config.axes[name]
    if not isinstance(axis, Range):
        return np.array(axis)
    return (np.geomspace if axis.scale == "log" else np.linspace)(axis.first, axis.last, axis.points)


def check_numbers(config: SweepConfig, rules: Mapping[str, Rule], device: str) -> None:
    """Every name of an axis is one of `rules`, and every value satisfies its rule.

    Raises:
        InputError: otherwise, or a name is both an axis and set.
    """
    for name in config.axes:
        for value in axis_values(config, name).tolist():
            check_value(f"axes.{name}", value, rules, device)
    if both := sorted(set(config.axes) & set(config.set)):
        raise InputError(f"{', '.join(both)} is both an axis and set; take it out of one of them")


def check_networks(config: SweepConfig, architecture: Architecture) -> None:
    """Networks of all points are possible: no more key-value heads than heads, and so on.

    Every rule is about two numbers at most, so that any two axes are tried at all of their values, the others at their first.

    Args:
        architecture: without axes, with what is set.
    Raises:
        InputError: a network that cannot be.
    """
    prefix, varied = "architecture.", {}
    for name in config.axes:
        if name.startswith(prefix):
            varied[name.removeprefix(prefix)] = axis_values(config, name).tolist()
    if not varied and not any(name.startswith(prefix) for name in config.set):
        return
    start = {name: float(value) for name, value in vars(architecture).items()}
    start |= {name: values[0] for name, values in varied.items()}
    alone = ({name: value} for name, values in varied.items() for value in values)
    pairs = (
        {one: first, other: second}
        for one, other in itertools.combinations(varied, 2)
        for first, second in itertools.product(varied[one], varied[other])
    )
    for changed in itertools.islice(itertools.chain([{}], alone, pairs), _MOST_NETWORKS):
        point = start | changed
        try:
            checked_architecture(point, where="axes and set")
        except EntryError as error:
            raise InputError(str(error)) from error


@dataclasses.dataclass(frozen=True)
class DerivedNumbers:
    """Numbers that follow from knobs of the draft: bits read, and acceptance where a law says it.

    Attributes:
        tables: names of axes, and dotted name of a number -> its entries, an axis each.
    """

    tables: tuple[tuple[tuple[str, ...], dict[str, np.ndarray]], ...] = ()

    @property
    def names(self) -> set[str]:
        """Numbers that are derived."""
        return {name for _, entries in self.tables for name in entries}

    def at(self, places: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The numbers of some points. Args: places: axis -> which of its values each point has, shapes that broadcast."""
        return {
            name: entries[tuple(places[axis] for axis in axes)]
            for axes, table in self.tables
            for name, entries in table.items()
        }


def derived_numbers(config: SweepConfig, knobs: Mapping[str, float]) -> tuple[DerivedNumbers, FoundLaw | None]:
    """What the axes that are knobs decide, for every combination of their values.

    Args:
        knobs: values of all of the scheme's.
    Raises:
        InputError: such a number is an axis or set itself, or a knob lies beyond what acceptance is known for.
    """
    scheme = find_scheme(config.scheme)
    axes = {name: knob for name in config.axes if (knob := knob_name(name, scheme)) is not None}
    values = {knob: axis_values(config, name).tolist() for name, knob in axes.items()}
    widths = {knob: column for knob, column in values.items() if knob != EXPERT_POOL.name}
    tables = [
        (tuple(f"draft.{name}" for name in names), {f"footprint.{width}": bits for width, bits in table.items()})
        for names, table in tabulate(scheme, knobs, widths)
    ]
    law = None
    if config.acceptance is not None:
        law = resolve_acceptance(config.acceptance, scheme)
        tables.append(_by_law(config, scheme, law, knobs, values))
    numbers = DerivedNumbers(tuple(tables))
    if both := sorted(numbers.names & {*config.axes, *config.set}):
        raise InputError(
            f"{', '.join(both)} follows from knobs of the draft or from [acceptance], and is an axis or set; leave one of "
            "them out"
        )
    return numbers, law


def _by_law(
    config: SweepConfig, scheme: Scheme, fit: FoundLaw, knobs: Mapping[str, float], values: dict[str, list[float]]
) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """alpha_token for every combination of the axes that the law depends on."""
    names = [name for name in fit.law.names if name in values]
    for name in fit.law.names:
        low, high = fit.ranges[name]
        for value in values.get(name, [knobs[name]]):
            if not low - 1e-9 <= value <= high + 1e-9:
                raise InputError(
                    f"draft.{name} is {value:g}, and acceptance is known from {low:g} to {high:g}; stay within, or give points"
                )
    grid = np.meshgrid(*(np.asarray(values[name], np.float32) for name in names), indexing="ij")
    own: dict[str, Any] = {name: np.float32(value) for name, value in knobs.items()}
    own |= dict(zip(names, grid, strict=True))
    alpha = np.exp(-np.asarray(jax.device_get(fit.law.hazard(own)), float))
    shape = tuple(len(values[name]) for name in names)
    return tuple(f"draft.{name}" for name in names), {"acceptance.alpha_token": np.broadcast_to(alpha, shape)}


def begin_points(
    base: dict[str, Any],
    varied: dict[str, np.ndarray],
    *,
    shape: tuple[int, ...],
    max_draft_length: int,
    intervals: bool = False,
    scatter: float = 0.0,
    device: Any = None,
) -> Callable[[], dict[str, np.ndarray]]:
    """Start to evaluate a block of design points; what it returns waits for them, arrays "point".

    Args:
        base: tree of single numbers: acceptance, architecture, device, draft, engine, footprint, routing, workload. Without
            draft.expert_pool its pool is as large as the first memory has room for.
        varied: dotted name of a leaf -> values that broadcast to `shape`; the program follows an axis only where they do.
        shape: axes of the block.
        max_draft_length: static.
        intervals: static; whether `INTERVAL_COLUMNS` are wanted too.
        scatter: of the engine's cycles, for these.
        device: of JAX; None: the default one. Each compiles a program of its own: one that is divided over devices is
            optimized otherwise, so that last digits would depend on how many there are.
    Returns:
        of a call of what is returned: name of `COLUMNS` and `INTERVAL_COLUMNS` -> "point", NaN where the device does not say
        (energy) and where nothing is known to err.
    """
    leaves, treedef = jax.tree.flatten(base)
    values, axes = [], []
    for name, leaf in zip(leaf_names(base), leaves, strict=True):
        value, own = _over_axes(varied[name], shape) if name in varied else (leaf, ())
        values.append(np.asarray(value, np.float32))
        axes.append(own)
    errors = known_scatter(base["device"], scatter) if intervals else None
    static: dict[str, Any] = {"treedef": treedef, "axes": tuple(axes), "max_draft_length": max_draft_length}
    evaluated = _evaluate(*jax.device_put((tuple(values), errors), device), shape=shape, **static)

    def columns() -> dict[str, np.ndarray]:
        point, ends = jax.device_get(evaluated)
        return _columns(point, ends, math.prod(shape), intervals)

    return columns


def _over_axes(values: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, tuple[int, ...]]:
    """Values without the axes that they do not follow, and the axes that they have."""
    values = values.reshape(*[1] * (len(shape) - values.ndim), *values.shape)
    own = tuple(axis for axis, size in enumerate(values.shape) if size > 1)
    return values.reshape([values.shape[axis] for axis in own]), own


def _columns(points: DesignPoint, ends: dict[str, np.ndarray], count: int, intervals: bool) -> dict[str, np.ndarray]:
    columns = {name: getattr(points, name) for name in COLUMNS if name != "fits"}
    columns["fits"] = points.held_bytes <= points.capacity_bytes
    columns = {name: columns[name] for name in COLUMNS}
    if intervals:
        columns |= {name: ends.get(name) for name in INTERVAL_COLUMNS}
    return {
        name: np.full(count, np.nan, np.float32) if column is None else np.reshape(column, count)
        for name, column in columns.items()
    }


def _one(
    tree: dict[str, Any], scatter: jax.Array | None, max_draft_length: int
) -> tuple[DesignPoint, dict[str, jax.Array]]:
    """A point, and the ends of its intervals; none without a scatter."""
    case = case_of(tree)
    chances = jnp.full(max_draft_length, tree["acceptance"]["alpha_token"])
    if "profile" in tree["acceptance"]:  # hazards by position
        chances = chances ** tree["acceptance"]["profile"]
    device, batch = case.device, case.workload.batch
    chains = priced_chains(case, hwmodels.Acceptance(chances))
    point = design_point(case, chains.result)
    if scatter is None:
        return point, {}
    numbers = chain_numbers(
        device, chains.cycle, point.draft_length, chances, batch=batch, passes=case.draft.passes, scatter=scatter
    )
    # Of a step nothing is known to err where cycles alone were measured, or an engine's on a device that was not.
    has_error = lambda number: True if times_have_errors(device) else number.log_deviation > 0
    return point, {
        f"{name}_{side}": jnp.where(has_error(number), end, jnp.nan)
        for name, number in numbers.items()
        for side, end in zip(("low", "high"), number.ends(), strict=True)
    }


@jax.jit(static_argnames=("treedef", "axes", "shape", "max_draft_length"))
def _evaluate(
    values: tuple[jax.Array, ...],
    scatter: jax.Array | None,
    *,
    treedef: Any,
    axes: tuple[tuple[int, ...], ...],
    shape: tuple[int, ...],
    max_draft_length: int,
) -> tuple[DesignPoint, dict[str, Any]]:
    def evaluate(values: tuple[jax.Array, ...]) -> tuple[DesignPoint, dict[str, Any]]:
        return _one(treedef.unflatten(values), scatter, max_draft_length)

    # A map for each axis, the last one innermost: what does not follow an axis is computed once for all of its values.
    for axis in reversed(range(len(shape))):
        followed = tuple(0 if axis in own else None for own in axes)
        evaluate = jax.vmap(evaluate, in_axes=(followed,), axis_size=shape[axis])
    return evaluate(values)


#: Most points that a device evaluates at a time: enough to fill the cores, few enough for their caches.
CHUNK = 32_768


@dataclasses.dataclass(frozen=True)
class Grid:
    """Every combination of the axes for each pair of a network and a device. Chunks are numbered through all pairs.

    A chunk is a block of the points of one pair: see `Blocks`.

    Attributes:
        axes: dotted name -> values.
        pairs: names of network and device.
        bases: of each pair, the tree whose leaves axes are named by.
        derived: numbers that follow from the axes.
        scatters: of the engine's cycles for each pair, for intervals; 0 unless given.
    """

    axes: dict[str, np.ndarray]
    pairs: list[tuple[str, str]]
    bases: list[dict[str, Any]]
    max_draft_length: int
    derived: DerivedNumbers = dataclasses.field(default_factory=DerivedNumbers)
    scatters: tuple[float, ...] = ()

    @cached_property
    def has_intervals(self) -> bool:
        """Whether a device's times are known to err, or an engine's cycles on it."""
        scatters = self.scatters or (0.0,) * len(self.bases)
        scatter = (known_scatter(base["device"], one) for base, one in zip(self.bases, scatters, strict=True))
        return any(one is not None for one in scatter)

    @property
    def of_the_device(self) -> tuple[str, ...]:
        """Results that are data of the devices: not an area that a technology predicts for one of them."""
        predicted = ("area_m2",) if any(base["device"].technology is not None for base in self.bases) else ()
        return tuple(name for name in OF_THE_DEVICE if name not in predicted)

    def schema(self, scheme: str) -> pa.Schema:
        """That of the file of all points. Args: scheme: whose widths axes begin with."""
        asked: dict[str, Any] = {"intervals": self.has_intervals, "of_the_device": self.of_the_device}
        return points_schema(tuple(self.axes), scheme, **asked)

    @cached_property
    def blocks(self) -> Blocks:
        """How the points of a pair are divided."""
        return blocks_of([len(values) for values in self.axes.values()], CHUNK)

    @property
    def chunks_per_pair(self) -> int:
        """Number of chunks of a pair."""
        return self.blocks.count

    def shard(self, number: int = 1, shards: int = 1) -> range:
        """Chunks of one of several shards, numbered from 1; shards differ by at most one chunk and follow one another."""
        total = self.chunks_per_pair * len(self.pairs)
        return range((number - 1) * total // shards, number * total // shards)

    def points_of(self, chunks: range) -> int:
        """Number of points of some chunks."""
        return sum(self.blocks.points_of(chunk % self.chunks_per_pair) for chunk in chunks)

    def columns(self, chunks: range) -> Generator[dict[str, np.ndarray], None, None]:
        """Names, axes and results of each chunk, in order.

        Local devices take turns, each with a call of the same shape, so that results depend neither on the chunk nor on the
        number of devices. The next calls are on their way while a chunk is used.
        """
        devices = jax.local_devices()
        with ThreadPoolExecutor(len(devices)) as pool:  # devices compile side by side
            begun: deque[Future] = deque()
            for i, chunk in enumerate(chunks):
                begun.append(pool.submit(self._begin, chunk, devices[i % len(devices)]))
                if len(begun) > len(devices):
                    yield begun.popleft().result()()
            while begun:
                yield begun.popleft().result()()

    def _begin(self, chunk: int, device: Any) -> Callable[[], dict[str, np.ndarray]]:
        pair, number = divmod(chunk, self.chunks_per_pair)
        places = dict(zip(self.axes, self.blocks.places(number), strict=True))
        varied = {name: values[places[name]] for name, values in self.axes.items()}
        # Knobs of widths are read by nothing but the derived numbers.
        own = varied | self.derived.at(places)
        shape, count = self.blocks.block_shape, self.blocks.points_of(number)
        asked: dict[str, Any] = {"max_draft_length": self.max_draft_length, "device": device}
        asked |= {"intervals": self.has_intervals, "scatter": self.scatters[pair] if self.scatters else 0.0}
        wait = begin_points(self.bases[pair], own, shape=shape, **asked)
        names = dict(zip(("architecture", "device"), self.pairs[pair], strict=True))

        def columns() -> dict[str, np.ndarray]:
            axes = {name: np.broadcast_to(values, shape).reshape(-1) for name, values in varied.items()}
            computed = {name: values[:count] for name, values in (axes | wait()).items()}
            return {name: np.full(count, value) for name, value in names.items()} | computed

        return columns


#: Hazard of a token that is never accepted.
_NEVER = 1e3


@dataclasses.dataclass(frozen=True)
class SweepPlan:
    """A sweep whose names and numbers are known to be right."""

    grid: Grid
    front: ParetoFront
    law: FoundLaw | None = None


def plan_sweep(config: SweepConfig) -> SweepPlan:
    """Names of devices and networks resolved, axes made. Raises InputError: one that cannot be used."""
    axes = {name: axis_values(config, name) for name in config.axes}
    pairs = [(shape, device) for shape in config.architecture for device in config.device]
    bases = [_base(config, shape, device) for shape, device in pairs]
    networks = {shape: base["architecture"] for (shape, _), base in zip(pairs, bases, strict=True)}
    for name, network in networks.items():  # the same on every device
        check_networks(config, network)
        check_positions(name, network, max(axes.get(CONTEXT, [0.0])) + 1)
    front = ParetoFront(**vars(config.pareto))
    scheme = find_scheme(config.scheme)
    knobs = {name: config.set.get(f"draft.{name}", value) for name, value in knob_defaults(scheme).items()}
    derived, law = derived_numbers(config, knobs)
    if law is not None and law.fit is None and law.law.profile.size > 1:
        bases = [_by_position(base, law, config.max_draft_length) for base in bases]
    scatters = tuple(engine_scatter(config.engine, device=base["device"]) for base in bases)
    grid = Grid(axes, pairs, bases, config.max_draft_length, derived, scatters)
    front.check_columns((*axes, *COLUMNS, *(INTERVAL_COLUMNS if grid.has_intervals else ())), axes)
    return SweepPlan(grid, front, law)


def _by_position(base: dict[str, Any], law: FoundLaw, longest: int) -> dict[str, Any]:
    """The tree with the hazard of each position; behind those that are known nothing is accepted."""
    known = np.asarray(law.law.profile, np.float32)[:longest]
    profile = np.pad(known, (0, longest - known.size), constant_values=_NEVER)
    return base | {"acceptance": base["acceptance"] | {"profile": profile}}


def _base(config: SweepConfig, architecture: str, device: str) -> dict[str, Any]:
    """The tree whose leaves axes are named by, at its values before any axis changes them."""
    varied = any(name.startswith("device.group.") for name in (*config.axes, *config.set))
    base = design_tree(config, architecture, device, parallel=config, together=varied)
    if config.pool_fits and "draft.expert_pool" in {*config.axes, *config.set}:
        raise InputError("pool_fits is true and draft.expert_pool is an axis or set; leave one of them out")
    check_numbers(config, number_rules(base["architecture"], base["device"], find_scheme(config.scheme)), device)
    return base
