"""Trees of drafted tokens for a batch: the nodes that are likeliest to be accepted, as many as pay.

A drafted token of rank r at depth d is accepted with one chance if its parent is: the chain's own acceptance by position for
rank 0, given chances for the ranks behind it. The n nodes with the largest products along their paths are the best tree of n
nodes (`jaxspec.trees.optimal_tree`); its cycle is priced as that of a chain is.
"""

from __future__ import annotations

import dataclasses
import heapq
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels import DraftCost, Footprint, Plan, plan_family, serving_cycle, tree_plan
from hwmodels.analysis.uncertainty.cycle_errors import CycleTimes, cycle_numbers, cycle_times
from hwmodels.analysis.uncertainty.delta_method import LogNormal
from hwmodels.numerics.quick_jit import quick_jit
from jaxspec.studies.advise.acceptance import DraftAcceptance
from jaxspec.studies.engine_flags import ServedTree
from jaxspec.tuning.objective import Pricing

__all__ = [
    "AdvisedTrees",
    "GrownTree",
    "chance_table",
    "grow_tree",
    "price_trees",
    "scaled_branches",
    "served_tree",
    "single_tree",
]

_ROOT = -1


class GrownTree(NamedTuple):
    """A tree in the order in which it grew: its first n nodes are the best tree of n nodes.

    Attributes:
        parent: of each node, -1 for the root. rank, depth: of each node, depth 0 for children of the root.
        chance: that a node is accepted.
    """

    parent: list[int]
    rank: list[int]
    depth: list[int]
    chance: list[float]


class AdvisedTrees(NamedTuple):
    """Trees of 1, 2, ... nodes.

    Attributes:
        speedup: over decoding what is stored, "batch node".
        tokens: per cycle, " node".
    """

    grown: GrownTree
    speedup: LogNormal
    tokens: Float[np.ndarray, " node"]


def grow_tree(chances: Float[np.ndarray, "depth rank"], nodes: int) -> GrownTree:
    """The best tree of every size up to `nodes`, by the largest product along a path.

    Args:
        chances: P(child of that rank accepted | parent accepted), in [0, 1].
        nodes: fewer grow where the table has no more.
    """
    depths, ranks = chances.shape
    found = GrownTree([], [], [], [])
    # Of equal chances the shallower node, then the earlier one.
    waiting = [(-float(chances[0, rank]), 0, rank, _ROOT) for rank in range(ranks)]
    heapq.heapify(waiting)
    while waiting and len(found.parent) < nodes:
        negative, depth, rank, parent = heapq.heappop(waiting)
        node = len(found.parent)
        for column, value in zip(found, (parent, rank, depth, -negative), strict=True):
            column.append(value)  # pyright: ignore[reportArgumentType]
        if depth + 1 < depths:
            for below in range(ranks):
                heapq.heappush(waiting, (negative * float(chances[depth + 1, below]), depth + 1, below, node))
    return found


def chance_table(conditional: Float[np.ndarray, " position"], branches: tuple[float, ...]) -> np.ndarray:
    """Chances by depth and rank, "depth rank": of rank 0 by position, of others the same at every depth; rows sum to <= 1."""
    rest = np.broadcast_to(np.asarray(branches), (conditional.size, len(branches)))
    room = np.maximum(1.0 - conditional, 0.0)
    share = np.minimum(1.0, room / np.maximum(rest.sum(axis=1), 1e-12))
    return np.concatenate([conditional[:, None], rest * share[:, None]], axis=1)


def scaled_branches(conditional: Float[np.ndarray, " position"], branches: tuple[float, ...]) -> tuple[str, ...]:
    """What is said where chances of all ranks sum to more than 1, so that `chance_table` takes less of the further ones."""
    over = [place for place, first in enumerate(conditional, 1) if first + sum(branches) > 1.0 + 1e-6]
    if not over:
        return ()
    where = f"position {over[0]}" if len(over) == 1 else f"positions {', '.join(map(str, over))}"
    where = "every position" if len(over) == conditional.size > 1 else where
    return (
        f"acceptance and branch_acceptance sum to more than 1 at {where} of a draft; chances of further candidates are scaled "
        "down there, so that the sum is 1",
    )


def price_trees(
    pricing: Pricing,
    *,
    footprint: Footprint,
    draft: DraftCost,
    acceptance: DraftAcceptance,
    branches: tuple[float, ...],
    nodes: int,
    batches: tuple[int, ...],
    scatter: float,
) -> AdvisedTrees:
    """Price the best tree of every size at every batch; on the host.

    Args:
        branches: chances of ranks 1, 2, ...
        nodes: of the largest tree.
        pricing, footprint, draft, acceptance, batches, scatter: see `price_advice`.
    """
    table = chance_table(acceptance.conditional, branches)
    grown = grow_tree(table, nodes)
    sizes = range(1, len(grown.parent) + 1)
    tokens = 1.0 + np.cumsum(grown.chance)
    # What each cause of error moves the tokens of the same trees by.
    moved = []
    for error in acceptance.error.T:
        shifted = chance_table(np.clip(acceptance.conditional + error, 0.0, 1.0), branches)
        moved.append(1.0 + np.cumsum(_chances(grown, shifted)) - tokens)
    errors = np.stack(moved, axis=-1)
    plans = plan_family([tree_plan(grown.parent[:size]) for size in sizes])
    cost = dataclasses.replace(draft, statement="")
    quiet = dataclasses.replace(pricing, device=dataclasses.replace(pricing.device, chip=None))
    arrays = (np.asarray(batches, np.float32), tokens.astype(np.float32), errors.astype(np.float32))
    return AdvisedTrees(
        grown, jax.device_get(_priced(quiet, footprint, cost, plans, *arrays, np.float32(scatter))), tokens
    )


def served_tree(grown: GrownTree, nodes: int) -> ServedTree:
    """The shape of the first nodes, as engines describe trees."""
    parents = grown.parent[:nodes]
    branching = max(parents.count(parent) for parent in set(parents))
    return ServedTree(nodes=nodes, depth=max(grown.depth[:nodes]) + 1, branching=branching)


def single_tree(trees: AdvisedTrees, chains: Float[np.ndarray, "batch length"]) -> ServedTree | None:
    """The tree with the highest mean log speedup over all batches; None where a chain or no draft has a higher one.

    Args:
        chains: speedups of draft lengths 1, 2, ...
    """
    gains = np.mean(np.log(np.asarray(trees.speedup.value)), axis=0)
    best = int(np.argmax(gains))
    other = max(0.0, float(np.mean(np.log(chains), axis=0).max()))
    return served_tree(trees.grown, best + 1) if gains[best] > other else None


def _chances(grown: GrownTree, table: np.ndarray) -> np.ndarray:
    """Of each node with another table."""
    found: list[float] = []
    for parent, rank, depth in zip(grown.parent, grown.rank, grown.depth, strict=True):
        found.append((1.0 if parent == _ROOT else found[parent]) * float(table[depth, rank]))
    return np.array(found)


@quick_jit
def _priced(
    pricing: Pricing,
    footprint: Footprint,
    draft: DraftCost,
    plans: Plan,
    batches: Float[Array, " batch"],
    tokens: Float[Array, " node"],
    errors: Float[Array, "node cause"],
    scatter: Float[Array, ""],
) -> LogNormal:
    axes = Plan(draft_tokens=None, draft_visible=None, draft_repeats=0, verify_tokens=0, verify_visible=0)
    passes = jnp.asarray(draft.passes)

    def one(batch: Array, plan: Plan, gained: Array, error: Array) -> LogNormal:
        workload = dataclasses.replace(pricing.workload, batch=batch)
        cycle = serving_cycle(
            pricing.device,
            pricing.architecture,
            footprint=footprint,
            draft_cost=draft,
            workload=workload,
            plan=plan,
            tokens_per_cycle=gained,
            engine=pricing.engine,
        )
        beside = jax.tree.map(lambda leaf: leaf[0], cycle.beside)
        first = jnp.minimum(passes, 1.0)
        runs = (jnp.asarray(plan.draft_repeats) * passes).at[0].add(-first)
        times: CycleTimes = cycle_times(
            pricing.device,
            bf16=cycle.baselines.bf16,
            stored=cycle.baselines.stored,
            cycle=[(runs, cycle.draft), (first, beside), (1.0, cycle.verify)],
            engine_s=cycle.engine_s,
            plain_engine_s=cycle.plain_engine_s,
            scatter=scatter,
        )
        return cycle_numbers(times, gained[None] - 1.0, error[None], batch=batch)["speedup_vs_stored_ar"]

    by_size = jax.vmap(one, (None, axes, 0, 0))
    return jax.vmap(by_size, (0, None, None, None))(batches, plans, tokens, errors)
