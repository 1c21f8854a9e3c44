"""The best choice at a batch: by trying every one, and by gradients of the soft model between a few hard ones.

A few hard points far apart say on which hill to begin: what a fast memory holds, and elements that take turns with a host,
divide the choices, and no slope leads across. The ascent begins at the best of them. Neighbours are tried last (`climb`): on
the hill where the ascent ended, and on the next best ones when its top is found.

A gradient is counted as `GRADIENT_COST` evaluations: it computes the function and pulls derivatives back through it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from experiments.elastic_choice.speed import Choice, log_speedup
from experiments.elastic_choice.surface import Surface
from jaxspec.tuning.objective import Pricing

__all__ = ["GRADIENT_COST", "Found", "Grid", "by_gradient", "by_trying_all", "climb"]

#: Evaluations that one value with its gradient is counted as.
GRADIENT_COST = 3

#: Soft to hard: temperatures of blends and of the roofline.
_TEMPERATURES, _SMOOTHINGS = (0.5, 0.05), (0.1, 0.01)

#: First and last step of the ascent, in a unit cube.
_STEPS = (0.2, 0.02)

#: Hard points far apart, as shares of each axis of a grid: smallest, moderate and all pools, with few and many bits in shortest
#: and longest chains, and as the widest of longest ones.
_POOLS = (0.0, 0.4, 1.0)
_FAR_APART = (
    *itertools.product(_POOLS, (0.25, 0.75), (0.0, 1.0), (0.0,)),
    *itertools.product(_POOLS, (0.5,), (1.0,), (1.0,)),
)

#: Distance of an ascent's start from the ends of each axis in the unit cube, so that slopes lead both ways.
_INSIDE = 0.1

#: Hard points priced in one call.
_CHUNK = 512


#: Share, bits, depth, width; and their values.
Point: TypeAlias = tuple[float, ...]
Known: TypeAlias = dict[Point, float]


class Grid(NamedTuple):
    """Whole values of each part of a choice, rising."""

    share: Sequence[float]
    bits: Sequence[float]
    depth: Sequence[float]
    width: Sequence[float]

    @property
    def size(self) -> int:
        """Points."""
        return int(np.prod([len(values) for values in self]))

    def points(self) -> Iterator[Point]:
        """All of them."""
        return itertools.product(*self)


class Found(NamedTuple):
    """Where a search ended.

    Attributes:
        choice: share, bits, depth, width.
        log_speedup: of the hard choice.
        evaluations: that it took, see `GRADIENT_COST`.
    """

    choice: Point
    log_speedup: float
    evaluations: int


@jax.jit
def _hard(points: Float[Array, "point 4"], batch: Array, surface: Surface, pricing: Pricing) -> Float[Array, " point"]:
    return jax.lax.map(lambda point: log_speedup(Choice(*point), batch, surface, pricing), points, batch_size=64)


def _priced(points: Sequence[Point], batch: float, surface: Surface, pricing: Pricing) -> np.ndarray:
    """Hard points, in chunks of one size."""
    every = np.asarray(points, np.float32)
    size = min(_CHUNK, 1 << (len(every) - 1).bit_length())
    found = []
    for start in range(0, len(every), size):
        part = every[start : start + size]
        padded = part[np.arange(size) % len(part)]
        found.append(np.asarray(_hard(jnp.asarray(padded), jnp.float32(batch), surface, pricing))[: len(part)])
    return np.concatenate(found)


def by_trying_all(grid: Grid, batch: float, surface: Surface, pricing: Pricing) -> Found:
    """The best point of the grid, the first on a tie."""
    points = list(grid.points())
    values = _priced(points, batch, surface, pricing)
    best = int(np.argmax(values))
    return Found(points[best], float(values[best]), len(points))


@partial(jax.jit, static_argnames="steps")
def _ascend(
    start: Float[Array, " 4"],
    low: Float[Array, " 4"],
    high: Float[Array, " 4"],
    batch: Array,
    surface: Surface,
    pricing: Pricing,
    steps: int,
) -> Float[Array, " 4"]:

    def soft(place: Array, temperature: Array, smoothing: Array) -> Array:
        choice = Choice(*(low + place * (high - low)))
        return -log_speedup(choice, batch, surface, pricing, temperature, smoothing)

    # The scale of a slope never falls fast, and few slopes are averaged: there are few steps.
    rates = optax.exponential_decay(_STEPS[0], max(steps - 1, 1), _STEPS[1] / _STEPS[0])
    climber = optax.adamax(rates, b1=0.5, b2=0.95)

    def step(carry: tuple[Array, optax.OptState], at: Array) -> tuple[tuple[Array, optax.OptState], None]:
        place, state = carry
        falling = lambda ends: ends[0] * (ends[1] / ends[0]) ** at
        gradient = jax.grad(soft)(place, falling(_TEMPERATURES), falling(_SMOOTHINGS))
        moves, state = climber.update(gradient, state, place)
        return (optax.projections.projection_box(optax.apply_updates(place, moves), 0.0, 1.0), state), None

    (place, _), _ = jax.lax.scan(step, (start, climber.init(start)), jnp.linspace(0.0, 1.0, steps))
    return low + place * (high - low)


def by_gradient(
    grid: Grid, batch: float, surface: Surface, pricing: Pricing, *, steps: int = 5, thrift: int = 50
) -> Found:
    """Ascend from the best of some hard points far apart, then climb the best hills by neighbours.

    Args:
        steps: gradients, at most.
        thrift: how many times fewer evaluations than trying all it takes; neighbours are tried until they are spent.
    """
    allowed = grid.size // thrift
    # A third of them at most for points far apart, a half for slopes; a grid too small for that takes one of each, and
    # says what it took.
    price = lambda points: _priced(points, batch, surface, pricing).tolist()
    known: Known = {}
    _learn(known, list(_far_apart(grid)), price, max(allowed // 3, 1))
    low, high = (np.asarray([pick(values) for values in grid], np.float32) for pick in (min, max))
    spans = np.where(high > low, high - low, 1.0)
    start = np.clip((np.asarray(_best(known), np.float32) - low) / spans, _INSIDE, 1.0 - _INSIDE)
    steps = int(np.clip(allowed // 2 // GRADIENT_COST, 1, steps))
    spent = GRADIENT_COST * steps
    end = np.asarray(_ascend(*map(jnp.asarray, (start, low, high)), jnp.float32(batch), surface, pricing, steps))
    nearest = tuple(min(values, key=lambda value: abs(value - at)) for values, at in zip(grid, end, strict=True))
    _learn(known, [nearest], price, len(known) + 1)
    climb(grid, known, price, allowed - spent)
    best = _best(known)
    return Found(best, known[best], spent + len(known))


def climb(grid: Grid, known: Known, price: Callable[[Sequence[Point]], Sequence[float]], most: int) -> None:
    """Try neighbours of known points until `most` points are known, or all of the grid that can be reached.

    The next point to look around is the best one that no known neighbour beats. So each hill that is known by a point is
    climbed once, the best first; many points of one hill that are better than the foot of another do not hide it.

    Args:
        known: one point or more, with values; what is tried is added.
        price: values of points.
    """
    done: set[Point] = set()
    while len(known) < most and (left := {point: known[point] for point in known if point not in done}):
        center = _best({point: left[point] for point in left if not _beaten(grid, known, point)} or left)
        for pair in _neighbours(grid, center):
            # The climb goes on from the first better one.
            new = _learn(known, pair, price, most)
            if any(known[point] > known[center] for point in new):
                break
        else:
            done.add(center)


def _learn(
    known: Known, points: Sequence[Point], price: Callable[[Sequence[Point]], Sequence[float]], most: int
) -> list[Point]:
    """Add values of points that are not known yet, until `most` are; return those added."""
    new = [point for point in dict.fromkeys(points) if point not in known][: max(0, most - len(known))]
    if new:
        known.update(zip(new, price(new), strict=True))
    return new


def _best(known: Known) -> Point:
    return max(known, key=lambda point: known[point])


def _beaten(grid: Grid, known: Known, point: Point) -> bool:
    """Whether a known neighbour is better."""
    return any(known.get(near, -np.inf) > known[point] for pair in _neighbours(grid, point) for near in pair)


def _far_apart(grid: Grid) -> Iterator[Point]:
    for place in _FAR_APART:
        yield tuple(values[round(at * (len(values) - 1))] for values, at in zip(grid, place, strict=True))


def _neighbours(grid: Grid, point: Point) -> Iterator[list[Point]]:
    """Both ways along each axis, the pool last: its steps are small, so four, one and two of them."""
    for axis, shift in ((2, 1), (3, 1), (1, 1), (0, 4), (0, 1), (0, 2)):
        values = grid[axis]
        at = list(values).index(point[axis])
        yield [
            (*point[:axis], values[to], *point[axis + 1 :]) for to in (at - shift, at + shift) if 0 <= to < len(values)
        ]
