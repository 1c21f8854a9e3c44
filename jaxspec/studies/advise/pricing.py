"""Cycles of every batch and draft length in the steady state of an engine, with their errors and what limits them."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from hwmodels import (
    Case,
    Device,
    DraftCost,
    Plan,
    PricedStep,
    plan_family,
    serving_cycle,
    tokens_per_cycle,
    tree_plan,
)
from hwmodels.analysis.uncertainty.cycle_errors import CycleTimes, LogNormal, cycle_numbers, cycle_times
from hwmodels.numerics.fast_compile import run_on_host
from hwmodels.speculation import ServingCycle
from jaxspec.studies.advise.inputs import DraftAcceptance
from jaxspec.studies.engine_flags import Range, ServedTree
from jaxspec.studies.feasibility import capacity_bytes

#: What an operator waits for.
CAUSES = ("arithmetic", "memory", "paths on the chip", "decoding of weights", "exchange")


class Advised(NamedTuple):
    """Of one device; leaves "batch length", draft lengths 1, 2, ...

    Attributes:
        numbers: of `cycle_numbers`, by name.
        tokens: per cycle, " length".
        times: steps of the cycles with the errors of their kernels, for `covered`.
        cycles: priced.
        held: bytes of weights and KV of target and draft, " batch"; fits: whether the device's memories hold them.
    """

    numbers: dict[str, LogNormal]
    tokens: Float[np.ndarray, " length"]
    times: CycleTimes
    cycles: ServingCycle
    held: Float[np.ndarray, " batch"]
    fits: Bool[np.ndarray, " batch"]


def price_advice(case: Case, *, acceptance: DraftAcceptance, batches: tuple[int, ...], scatter: float) -> Advised:
    """Price all batches and draft lengths; on the host.

    Args:
        case: its workload's batch is not used.
        scatter: of the engine's cycles, standard deviation of the logarithm.
    """
    lengths = np.arange(1, acceptance.conditional.size + 1, dtype=np.float32)
    tokens = run_on_host(tokens_per_cycle)(np.asarray(acceptance.conditional, np.float32))
    pairs = [each.ravel() for each in np.meshgrid(np.asarray(batches, np.float32), lengths, indexing="ij")]
    priced = _priced(_quiet(case), *pairs, np.tile(tokens, len(batches)))
    by_batch = lambda leaf: leaf.reshape(len(batches), lengths.size, *leaf.shape[1:])
    cycles, held, times = jax.tree.map(by_batch, priced)
    times = dataclasses.replace(times, scatter=np.full(times.engine_s.shape, scatter, np.float32))
    numbers, held = _numbers(times, acceptance, np.asarray(batches, np.float32)), held[:, 0]
    return Advised(numbers, tokens, times, cycles, held, held <= capacity_bytes(case.device))


def _quiet(case: Case) -> Case:
    """Without energy, which is not asked for."""
    return dataclasses.replace(case.unstated, device=dataclasses.replace(case.device, chip=None))


@run_on_host
def _priced(
    case: Case, batches: Float[Array, " pair"], lengths: Float[Array, " pair"], tokens: Float[Array, " pair"]
) -> tuple[ServingCycle, Array, CycleTimes]:
    """Cycles, bytes held and times of pairs of a batch and a draft length: one map, as two in each other trace for longer."""

    def cycle(batch: Array, length: Array, gained: Array) -> tuple[ServingCycle, Array, CycleTimes]:
        at = case.at(batch=batch)
        serving = serving_cycle(at, case.draft.plan(length), tokens_per_cycle=gained)
        return serving, at.held_bytes, _times(case.device, serving, draft_passes(case.draft, length))

    return jax.vmap(cycle)(batches, lengths, tokens)


def draft_passes(draft: DraftCost, length: Array | float) -> Array | float:
    """Of the draft in a cycle of so many drafted tokens, at least 1: a block drafter makes one for all, a lookup none."""
    return draft.passes * (1.0 if draft.block else length)


def _times(device: Device, one: ServingCycle, passes: Array | float) -> CycleTimes:
    """The steps of one cycle, of which one draft step carries prompts. Args: passes: of the draft in the cycle."""
    first = jnp.minimum(passes, 1.0)
    alone, beside = (jax.tree.map(lambda leaf: leaf[0], step) for step in (one.draft, one.beside))
    return cycle_times(
        device,
        bf16=one.baselines.bf16,
        stored=one.baselines.stored,
        cycle=[(passes - first, alone), (first, beside), (1.0, one.verify)],
        engine_s=one.engine_s,
        plain_engine_s=one.plain_engine_s,
    )


@run_on_host
@jax.vmap
def _cycle_numbers(
    times: CycleTimes,
    chances: Float[Array, "... position"],
    error: Float[Array, "... position cause"],
    batch: Float[Array, ...],
) -> dict[str, LogNormal]:
    return cycle_numbers(times, chances, error, batch=batch)


def _numbers(
    times: CycleTimes, acceptance: DraftAcceptance, batches: Float[np.ndarray, " batch"]
) -> dict[str, LogNormal]:
    stacked = jax.tree.map(lambda leaf: np.reshape(leaf, (-1, *np.shape(leaf)[2:])), times)
    positions = acceptance.conditional.size
    # Positions beyond a draft length gain nothing, surely.
    inside = np.tril(np.ones((positions, positions)))
    chances = np.tile(inside * acceptance.conditional, (len(batches), 1))
    error = np.tile(inside[:, :, None] * acceptance.error, (len(batches), 1, 1))
    numbers = _cycle_numbers(
        stacked, chances.astype(np.float32), error.astype(np.float32), np.repeat(batches, positions)
    )
    shape = (len(batches), positions)
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64).reshape(shape), numbers)


def time_by_cause(advised: Advised, batch: int, length: int, draft: DraftCost) -> dict[str, float]:
    """Seconds of a cycle, or of an autoregressive step for length 0, by part and by what its operators wait for.

    Args:
        batch: place among the batches.
        length: draft length.
    """
    one: ServingCycle = jax.tree.map(lambda leaf: leaf[batch, max(length - 1, 0)], advised.cycles)
    if length == 0:
        causes = _causes(one.baselines.stored, "decode", 1.0)
        return _above_nothing(causes | {"engine": float(one.plain_engine_s)})
    passes = float(draft_passes(draft, float(length)))
    first = min(passes, 1.0)
    alone, beside = (jax.tree.map(lambda leaf: leaf[0], step) for step in (one.draft, one.beside))
    causes = _causes(one.verify, "verify", 1.0) | {"engine": float(one.engine_s)}
    for runs, step in ((passes - first, alone), (first, beside)):
        for name, seconds in _causes(step, "draft", runs).items():
            causes[name] = causes.get(name, 0.0) + seconds
    return _above_nothing(causes)


def _causes(step: PricedStep, part: str, runs: float) -> dict[str, float]:
    """Each operator's time belongs to the longest of what it waits for, and its launches to themselves; then encoders'.

    Of several devices, collectives and the wait for the fullest stage are apart.
    """
    cost = step.cost
    limits = np.stack([cost.compute_s, cost.memory_s, cost.on_chip_s, cost.decoding_s, cost.exchange_s])
    busy = np.asarray(cost.operator_s, np.float64)
    launches = np.where(limits.max(axis=0) > 0, np.minimum(cost.launch_s, busy), 0.0)
    waits = limits.argmax(axis=0)
    causes = {f"{part}: {name}": runs * float(np.sum((busy - launches)[waits == i])) for i, name in enumerate(CAUSES)}
    encoding = max(float(cost.encoding_s) - float(np.sum(busy)), 0.0)
    others = 0.0 if cost.collective_s is None else float(np.sum(np.asarray(cost.collective_s, np.float64)))
    return causes | {
        f"{part}: other devices": runs * others,
        f"{part}: launches": runs * float(np.sum(launches)),
        f"{part}: encoding of the cache": runs * encoding,
    }


def _above_nothing(causes: dict[str, float]) -> dict[str, float]:
    return {name: seconds for name, seconds in sorted(causes.items(), key=lambda item: -item[1]) if seconds > 0}


def ranges(batches: Sequence[int], lengths: Sequence[int]) -> list[Range]:
    """Ranges of batches, from 1 to the last, each with the draft length of the largest asked-for batch at or below it.

    Args:
        batches: rising; batches below the first take its length.
        lengths: of each, 0 for no speculation.
    """
    spans: list[Range] = []
    for index, (batch, length) in enumerate(zip(batches, lengths, strict=True)):
        last = batches[index + 1] - 1 if index + 1 < len(batches) else batch
        if spans and spans[-1].draft_length == length:
            spans[-1] = Range(spans[-1].first, last, length)
        else:
            spans.append(Range(batch if spans else 1, last, length))
    return spans


def single_length(speedups: Float[np.ndarray, "batch length"], fits: Bool[np.ndarray, " batch"]) -> int:
    """The draft length with the highest mean log speedup; 0 where none is above 0.

    Args:
        speedups: of draft lengths 1, 2, ...
        fits: batches for which there is memory, which alone count; all do where there is none.
    """
    gains = _mean_gains(speedups, fits)
    return int(np.argmax(gains)) + 1 if gains.max() > 0 else 0


def _mean_gains(speedups: np.ndarray, fits: np.ndarray) -> np.ndarray:
    return np.mean(np.log(speedups[fits if fits.any() else slice(None)]), axis=0)


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
    tree = GrownTree([], [], [], [])
    # Of equal chances the shallower node, then the earlier one.
    waiting = [(-float(chances[0, rank]), 0, rank, _ROOT) for rank in range(ranks)]
    heapq.heapify(waiting)
    while waiting and len(tree.parent) < nodes:
        negative, depth, rank, parent = heapq.heappop(waiting)
        node = len(tree.parent)
        for column, value in zip(tree, (parent, rank, depth, -negative), strict=True):
            column.append(value)  # pyright: ignore[reportArgumentType]
        if depth + 1 < depths:
            for below in range(ranks):
                heapq.heappush(waiting, (negative * float(chances[depth + 1, below]), depth + 1, below, node))
    return tree


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
    case: Case,
    *,
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
        case, acceptance, batches, scatter: see `price_advice`.
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
    arrays = (np.asarray(batches, np.float32), tokens.astype(np.float32), errors.astype(np.float32))
    return AdvisedTrees(grown, _priced_trees(_quiet(case), plans, *arrays, np.float32(scatter)), tokens)


def served_tree(grown: GrownTree, nodes: int) -> ServedTree:
    """The shape of the first nodes, as engines describe trees."""
    parents = grown.parent[:nodes]
    branching = max(parents.count(parent) for parent in set(parents))
    return ServedTree(nodes=nodes, depth=max(grown.depth[:nodes]) + 1, branching=branching)


def single_tree(
    trees: AdvisedTrees, chains: Float[np.ndarray, "batch length"], fits: Bool[np.ndarray, " batch"]
) -> ServedTree | None:
    """The tree with the highest mean log speedup; None where a chain or no draft has a higher one.

    Args:
        chains: speedups of draft lengths 1, 2, ...
        fits: as of `single_length`.
    """
    gains = _mean_gains(np.asarray(trees.speedup.value), fits)
    best = int(np.argmax(gains))
    other = max(0.0, float(_mean_gains(chains, fits).max()))
    return served_tree(trees.grown, best + 1) if gains[best] > other else None


def _chances(grown: GrownTree, table: np.ndarray) -> np.ndarray:
    """Of each node with another table."""
    chances: list[float] = []
    for parent, rank, depth in zip(grown.parent, grown.rank, grown.depth, strict=True):
        chances.append((1.0 if parent == _ROOT else chances[parent]) * float(table[depth, rank]))
    return np.array(chances)


@run_on_host
def _priced_trees(
    case: Case,
    plans: Plan,
    batches: Float[Array, " batch"],
    tokens: Float[Array, " node"],
    errors: Float[Array, "node cause"],
    scatter: Float[Array, ""],
) -> LogNormal:
    axes = Plan(draft_tokens=None, draft_visible=None, draft_repeats=0, verify_tokens=0, verify_visible=0)
    passes = jnp.asarray(case.draft.passes)

    def one(batch: Array, plan: Plan, gained: Array, error: Array) -> LogNormal:
        at = case.at(batch=batch)
        cycle = serving_cycle(at, plan, tokens_per_cycle=gained)
        beside = jax.tree.map(lambda leaf: leaf[0], cycle.beside)
        first = jnp.minimum(passes, 1.0)
        runs = (jnp.asarray(plan.draft_repeats) * passes).at[0].add(-first)
        times: CycleTimes = cycle_times(
            case.device,
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
