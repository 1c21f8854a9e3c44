"""Design points by the thousand: one compiled program, divided over the local devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import hwmodels
from hwmodels.analysis.design_point import DesignPoint, design_point
from hwmodels.analysis.sensitivity import leaf_names
from hwmodels.analysis.uncertainty.cycle_errors import chain_numbers
from hwmodels.analysis.uncertainty.kernel_errors import times_have_errors
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
        name of `COLUMNS` and `INTERVAL_COLUMNS` -> "point", NaN where the device does not say (energy, intervals).
    """
    asked: dict[str, Any] = {"max_draft_length": max_draft_length, "intervals": intervals, "scatter": scatter}
    return begin_points(base, varied, **asked)()


def begin_points(
    base: dict[str, Any],
    varied: dict[str, np.ndarray],
    *,
    max_draft_length: int,
    intervals: bool = False,
    scatter: float = 0.0,
    devices: Sequence[Any] | None = None,
) -> Callable[[], dict[str, np.ndarray]]:
    """Start to evaluate design points; what it returns waits for them.

    Args:
        base, varied, max_draft_length, intervals, scatter: see `evaluate_points`.
        devices: of JAX; they share the points evenly, and must divide their number; None: the default device alone.
    """
    leaves, treedef = jax.tree.flatten(base)
    names = leaf_names(base)
    axes = tuple(0 if name in varied else None for name in names)
    values = [np.asarray(varied.get(name, leaf), np.float32) for name, leaf in zip(names, leaves, strict=True)]
    if devices is not None and len(devices) > 1:
        mesh = Mesh(np.array(devices), ("point",))
        places = [NamedSharding(mesh, PartitionSpec(*(["point"] if axis == 0 else []))) for axis in axes]
        arrays = tuple(jax.device_put(value, place) for value, place in zip(values, places, strict=True))
    else:
        arrays = tuple(map(jnp.asarray, values))
    # Of a device that is not calibrated nothing is known to err.
    errors = np.float32(scatter) if intervals and times_have_errors(base["device"]) else None
    found = _evaluate(arrays, errors, treedef=treedef, axes=axes, max_draft_length=max_draft_length)
    count = len(next(iter(varied.values())))
    return lambda: _columns(*jax.device_get(found), count, intervals)


def _columns(found: DesignPoint, ends: dict[str, np.ndarray], count: int, intervals: bool) -> dict[str, np.ndarray]:
    columns = {name: getattr(found, name) for name in COLUMNS if name != "fits"}
    columns["fits"] = found.held_bytes <= found.capacity_bytes
    columns = {name: columns[name] for name in COLUMNS}
    if intervals:
        columns |= {name: ends.get(name) for name in INTERVAL_COLUMNS}
    return {
        name: np.full(count, np.nan, np.float32) if column is None else np.broadcast_to(column, count)
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
    sides = {name: dict(zip(("low", "high"), number.ends(), strict=True)) for name, number in numbers.items()}
    return point, {f"{name}_{side}": end for name, ends in sides.items() for side, end in ends.items()}


@jax.jit(static_argnames=("treedef", "axes", "max_draft_length"))
def _evaluate(
    values: tuple[jax.Array, ...],
    scatter: jax.Array | None,
    *,
    treedef: Any,
    axes: tuple[int | None, ...],
    max_draft_length: int,
):
    one = lambda values: _one(treedef.unflatten(values), scatter, max_draft_length)
    return jax.vmap(one, in_axes=(axes,))(values)
