"""Design points by the thousand: a compiled program for a block of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hwmodels
from hwmodels.analysis.design_point import DesignPoint, design_point
from hwmodels.analysis.sensitivity import leaf_names
from hwmodels.analysis.uncertainty.cycle_errors import chain_numbers
from hwmodels.analysis.uncertainty.kernel_errors import known_scatter, times_have_errors
from hwmodels.speculation.chains import priced_chains
from jaxspec.studies.design_tree import draft_of, footprint_of
from jaxspec.studies.sweep.points_file import COLUMNS, INTERVAL_COLUMNS

__all__ = ["begin_points", "evaluate_points"]


def evaluate_points(
    base: dict[str, Any],
    varied: dict[str, np.ndarray],
    *,
    max_draft_length: int,
    intervals: bool = False,
    scatter: float = 0.0,
) -> dict[str, np.ndarray]:
    """Results of design points that differ from `base` in some leaves.

    Args:
        base: tree of single numbers: acceptance, architecture, device, draft, engine, footprint, routing, workload. Without
            draft.expert_pool its pool is as large as the first memory has room for.
        varied: dotted name of a leaf -> "point".
        max_draft_length: static.
        intervals: static; whether `INTERVAL_COLUMNS` are wanted too.
        scatter: of the engine's cycles, for these.
    Returns:
        name of `COLUMNS` and `INTERVAL_COLUMNS` -> "point", NaN where the device does not say (energy) and where nothing is
        known to err.
    """
    count = len(next(iter(varied.values())))
    asked: dict[str, Any] = {"max_draft_length": max_draft_length, "intervals": intervals, "scatter": scatter}
    return begin_points(base, varied, shape=(count,), **asked)()


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
        base, max_draft_length, intervals, scatter: see `evaluate_points`.
        varied: dotted name of a leaf -> values that broadcast to `shape`; the program follows an axis only where they do.
        shape: axes of the block.
        device: of JAX; None: the default one. Each compiles a program of its own: one that is divided over devices is
            optimized otherwise, so that last digits would depend on how many there are.
    """
    leaves, treedef = jax.tree.flatten(base)
    values, axes = [], []
    for name, leaf in zip(leaf_names(base), leaves, strict=True):
        value, own = _over_axes(varied[name], shape) if name in varied else (leaf, ())
        values.append(np.asarray(value, np.float32))
        axes.append(own)
    errors = known_scatter(base["device"], scatter) if intervals else None
    static: dict[str, Any] = {"treedef": treedef, "axes": tuple(axes), "max_draft_length": max_draft_length}
    found = _evaluate(*jax.device_put((tuple(values), errors), device), shape=shape, **static)

    def columns() -> dict[str, np.ndarray]:
        point, ends = jax.device_get(found)
        return _columns(point, ends, math.prod(shape), intervals)

    return columns


def _over_axes(values: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, tuple[int, ...]]:
    """Values without the axes that they do not follow, and the axes that they have."""
    values = values.reshape(*[1] * (len(shape) - values.ndim), *values.shape)
    own = tuple(axis for axis, size in enumerate(values.shape) if size > 1)
    return values.reshape([values.shape[axis] for axis in own]), own


def _columns(found: DesignPoint, ends: dict[str, np.ndarray], count: int, intervals: bool) -> dict[str, np.ndarray]:
    columns = {name: getattr(found, name) for name in COLUMNS if name != "fits"}
    columns["fits"] = found.held_bytes <= found.capacity_bytes
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
    device, architecture = tree["device"], tree["architecture"]
    footprint, workload = footprint_of(tree["footprint"]), tree["workload"]
    experts = draft_of(tree)
    chances = jnp.full(max_draft_length, tree["acceptance"]["alpha_token"])
    if "profile" in tree["acceptance"]:  # hazards by position
        chances = chances ** tree["acceptance"]["profile"]
    draft = experts.draft_cost(device, architecture, workload=workload, footprint=footprint)
    common: dict[str, Any] = {
        "workload": workload,
        "footprint": footprint,
        "routing": experts.routing,
        "draft_cost": draft,
        "acceptance": hwmodels.Acceptance(chances),
        "engine": tree["engine"],
    }
    chains = priced_chains(device, architecture, **common)
    point = design_point(device, architecture, result=chains.result, **common)
    if scatter is None:
        return point, {}
    numbers = chain_numbers(
        device, chains.cycle, point.draft_length, chances, batch=workload.batch, passes=draft.passes, scatter=scatter
    )
    # Of a step nothing is known to err where cycles alone were measured, or an engine's on a device that was not.
    told = lambda number: True if times_have_errors(device) else number.log_deviation > 0
    return point, {
        f"{name}_{side}": jnp.where(told(number), end, jnp.nan)
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
