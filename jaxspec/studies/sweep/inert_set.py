"""Numbers of [set] that no result of a sweep depends on: points are priced without each of them, and compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxspec.errors import InputError
from jaxspec.studies.sweep.config import SweepConfig, shard_of
from jaxspec.studies.sweep.grid import Grid
from jaxspec.studies.sweep.plan import SweepPlan, plan_sweep

__all__ = ["inert_settings"]

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
