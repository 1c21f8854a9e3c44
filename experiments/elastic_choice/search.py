"""The best choice at a batch: by trying every one, and by gradients of the soft model with a few hard ones where they end.

A gradient is counted as `GRADIENT_COST` evaluations: it computes the function and pulls derivatives back through it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from experiments.elastic_choice.speed import Choice, log_speedup
from experiments.elastic_choice.surface import Surface
from jaxspec.tuning.objective import Pricing

__all__ = ["GRADIENT_COST", "Found", "Grid", "by_gradient", "by_trying_all"]

#: Evaluations that one value with its gradient is counted as.
GRADIENT_COST = 3

#: Soft to hard: temperatures of blends and of the roofline.
_TEMPERATURES, _SMOOTHINGS = (0.5, 0.05), (0.1, 0.01)

#: First and last step of the ascent, in a unit cube.
_STEPS = (0.2, 0.02)

#: Where ascents begin in the unit cube: what a fast memory holds divides the pools in two, and no slope leads across.
_STARTS = ((0.15, 0.5, 0.5, 0.5), (0.6, 0.5, 0.5, 0.5))

#: Hard points priced in one call.
_CHUNK = 512


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

    def points(self) -> Iterator[tuple[float, ...]]:
        """All of them."""
        return itertools.product(*self)


class Found(NamedTuple):
    """Where a search ended.

    Attributes:
        choice: share, bits, depth, width.
        log_speedup: of the hard choice.
        evaluations: that it took, see `GRADIENT_COST`.
    """

    choice: tuple[float, ...]
    log_speedup: float
    evaluations: int


@jax.jit
def _hard(points: Float[Array, "point 4"], batch: Array, surface: Surface, pricing: Pricing) -> Float[Array, " point"]:
    return jax.lax.map(lambda point: log_speedup(Choice(*point), batch, surface, pricing), points, batch_size=64)


def _priced(points: Sequence[tuple[float, ...]], batch: float, surface: Surface, pricing: Pricing) -> np.ndarray:
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
    low: Float[Array, " 4"],
    high: Float[Array, " 4"],
    batch: Array,
    surface: Surface,
    pricing: Pricing,
    steps: int,
) -> Float[Array, "start 4"]:

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

    def from_start(start: Array) -> Array:
        (place, _), _ = jax.lax.scan(step, (start, climber.init(start)), jnp.linspace(0.0, 1.0, steps))
        return low + place * (high - low)

    return jax.lax.map(from_start, jnp.asarray(_STARTS))


def by_gradient(
    grid: Grid, batch: float, surface: Surface, pricing: Pricing, *, steps: int = 6, thrift: int = 50
) -> Found:
    """Ascend from a few starts, take the hard points around the best end, then neighbours of the best points found.

    Args:
        steps: gradients from each start, at most.
        thrift: how many times fewer evaluations than trying all it takes; neighbours are taken until they are spent.
    """
    allowed = grid.size // thrift
    # Half of them at most for slopes; a grid too small for that takes one slope from each start, and says what it took.
    steps = int(np.clip(allowed // 2 // (GRADIENT_COST * len(_STARTS)), 1, steps))
    spent = GRADIENT_COST * steps * len(_STARTS)
    most = max(allowed - spent, len(_STARTS))
    low, high = (jnp.asarray([pick(values) for values in grid], jnp.float32) for pick in (min, max))
    ends = np.asarray(_ascend(low, high, jnp.float32(batch), surface, pricing, steps))
    around = [[_nearest_two(values, float(at)) for values, at in zip(grid, end, strict=True)] for end in ends]
    known: dict[tuple[float, ...], float] = {}

    def price(points: list[tuple[float, ...]]) -> None:
        new = [point for point in points if point not in known][: max(0, most - len(known))]
        if new:
            known.update(zip(new, _priced(new, batch, surface, pricing).tolist(), strict=True))

    nearest = [tuple(values[0] for values in each) for each in around]
    price(nearest)
    price(list(itertools.product(*around[int(np.argmax([known[point] for point in nearest]))])))
    # Best first: where the best point has no better neighbour, the next best ones are looked around.
    seen: set[tuple[float, ...]] = set()
    while len(known) < most and (left := [point for point in known if point not in seen]):
        center = max(left, key=lambda point: known[point])
        seen.add(center)
        price(list(_neighbours(grid, center)))
    best = max(known, key=lambda point: known[point])
    return Found(best, known[best], spent + len(known))


def _nearest_two(values: Sequence[float], at: float) -> list[float]:
    return sorted(values, key=lambda value: abs(value - at))[:2]


def _neighbours(grid: Grid, point: tuple[float, ...]) -> Iterator[tuple[float, ...]]:
    """One step along each axis, and two along the pool, whose steps are small."""
    for axis, values in enumerate(grid):
        at = list(values).index(point[axis])
        for shift in (-4, -2, -1, 1, 2, 4) if axis == 0 else (-1, 1):
            if 0 <= at + shift < len(values):
                yield (*point[:axis], values[at + shift], *point[axis + 1 :])
