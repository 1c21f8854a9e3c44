"""Seconds of every step that an engine may take, priced once by the one pricing path.

A step decodes for some sequences, of which each generates one token or a draft and its verification, and processes a chunk of
prompts beside them. Sequences at different contexts read as many keys and values as that many at their mean context.

Departs: tokens of a chunk see the context that decoding sequences see, not that of their own prompts; a draft that is a network
processes prompts too, one that is a part of the target finds them in its cache.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from hwmodels.analysis.uncertainty.cycle_errors import answer_times, cycle_numbers
from hwmodels.analysis.uncertainty.kernel_errors import known_scatter
from hwmodels.network.architecture import Workload
from hwmodels.network.operators import StepShape
from hwmodels.numerics.compensated_sums import CompensatedSum
from hwmodels.numerics.fast_compile import jit_fast_compile
from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.parallel.group import for_draft, sharing_devices
from hwmodels.speculation.cycle import Case, plan_steps, steps_of_draft
from hwmodels.speculation.engine_logs import engine_time, prompts_time
from hwmodels.speculation.plan import chain_plan
from hwmodels.step.priced_steps import price_steps

__all__ = [
    "Engine",
    "Served",
    "Serving",
    "Slots",
    "StepTable",
    "priced_table",
    "step_seconds",
]

# An engine that serves: how it schedules, what it holds between two steps, and what became of its requests.


@flax.struct.dataclass
class Engine:
    """How an engine schedules. `slots` is static, every other field a leaf or an array."""

    chunk_tokens: Leaf  # prompt tokens of a step at most, >= 1
    capacity_tokens: Leaf  # whose keys and values fit where sequences keep no states, > 0
    draft_lengths: Int[
        Array, " batch"
    ]  # drafted tokens with 0, 1, 2, ... sequences that generate; zeros: no speculation
    conditional: Float[Array, " position"]  # P(position accepted | all before accepted)
    slots: int = flax.struct.field(pytree_node=False, default=1)  # sequences in the batch at most
    sequence_tokens: Leaf = 0.0  # as whose keys and values a sequence's states take room, >= 0


@flax.struct.dataclass
class Served:
    """What became of the requests, by request, and sums over the engine's steps."""

    wait_s: Float[Array, " request"]  # from the request's arrival until its first step begins
    ttft_s: Float[Array, " request"]  # from its arrival until its first token is there
    request_s: Float[Array, " request"]  # from its arrival until its last one is
    end_s: Float[Array, ""]  # when the engine stops
    busy_s: Float[Array, ""]  # in steps
    held_slots_s: Float[Array, ""]  # slots that are taken, over time
    steps: Int[Array, ""]


class Slots(NamedTuple):
    """What is in the engine's slots."""

    request: Int[Array, " slot"]  # -1: free
    prompt_left: Float[Array, " slot"]
    output_left: Float[Array, " slot"]
    context: Float[Array, " slot"]
    held_tokens: Float[Array, " slot"]  # for which room is kept


class Serving(NamedTuple):
    """An engine between two steps.

    Attributes:
        head: the next request to admit.
        done: requests that have all their tokens.
    """

    clock_s: CompensatedSum
    busy_s: CompensatedSum
    held_slots_s: CompensatedSum
    head: Int[Array, ""]
    done: Int[Array, ""]
    slots: Slots
    served: Served


#: Priced batches: all small ones, then three in each octave; between them times are interpolated.
_SMALL_BATCH = 4


@flax.struct.dataclass
class StepTable:
    """Seconds of a step by draft length, batch, mean context and prompt tokens of the chunk.

    Batch 0: a chunk alone; its context is that of the prompts in it. Draft length 0: one token for each sequence.
    """

    seconds: Float[Array, "length batch context chunk"]  # batches 0, 1, 2, ..., all of them
    contexts: Float[Array, " context"]  # increasing, the first 0
    chunks: Float[Array, " chunk"]  # increasing, the first 0
    #: Standard deviation of each step's logarithm, in the form of `seconds`: errors of kernels, and of the engine's cycles.
    deviation: Float[Array, "length batch context chunk"] | None = None

    def erring(self, deviates: Number) -> StepTable:
        """The same steps where all err together, by so many standard deviations, "*b"; as they are for 0."""
        if self.deviation is None:
            return self
        return dataclasses.replace(self, seconds=self.seconds * jnp.exp(as_float(deviates) * self.deviation))


def priced_table(
    case: Case,
    *,
    max_batch: int,
    max_context: int,
    max_chunk: int,
    draft_length: int = 0,
    scatter: float = 0.0,
) -> StepTable:
    """Price a grid of steps in one map.

    Args:
        case: of its workload nothing is read.
        max_batch, max_context, max_chunk: static, >= 1.
        draft_length: static, >= 0; lengths from 0 to it are priced.
        scatter: static; of the engine's cycles with a draft, for `StepTable.deviation`: see `known_scatter`.
    Raises:
        ValueError: what the pricing path raises.
    """
    batches = _batches(max_batch)
    contexts = np.unique(np.concatenate([[0.0], np.geomspace(min(64.0, max_context), max_context, 8)]))
    chunks = np.unique(np.round(max_chunk * np.array([0.0, 0.125, 0.25, 0.5, 1.0])))
    lengths = np.arange(draft_length + 1.0)
    grid = np.meshgrid(lengths, batches, contexts, chunks, indexing="ij")
    points = [jnp.asarray(axis.reshape(-1), jnp.float32) for axis in grid]

    parts = case, known_scatter(case.device, scatter)
    whole = jnp.arange(max_batch + 1.0)
    # Batch 0 is another kind of step, which none is interpolated with.
    between = jax.vmap(lambda known: jnp.interp(whole[1:], jnp.asarray(batches[1:]), known), in_axes=-1, out_axes=-1)

    def filled(priced: Float[Array, " point"]) -> Float[Array, "length batch context chunk"]:
        known = priced.reshape(grid[0].shape)
        columns = jnp.moveaxis(known, 1, -1)[..., 1:]
        rows = between(columns.reshape(-1, columns.shape[-1]).T).reshape(max_batch, *columns.shape[:-1])
        return jnp.concatenate([known[:, :1], jnp.moveaxis(rows, 0, 1)], axis=1)

    seconds, deviation = _steps(parts, *points)
    table = filled(seconds)
    return StepTable(
        table,
        jnp.asarray(contexts, table.dtype),
        jnp.asarray(chunks, table.dtype),
        None if deviation is None else filled(deviation),
    )


def _batches(max_batch: int) -> np.ndarray:
    octaves = np.arange(np.log2(_SMALL_BATCH), np.log2(max_batch) + 1 / 3, 1 / 3) if max_batch > _SMALL_BATCH else []
    batches = np.unique(
        np.round(np.concatenate([np.arange(_SMALL_BATCH + 1.0), 2.0 ** np.asarray(octaves), [max_batch]]))
    )
    return np.asarray(batches[batches <= max_batch], np.float32)


@jit_fast_compile
def _steps(parts: tuple, *points: Array) -> tuple[Array, Array | None]:
    """Seconds of many steps, and the deviations of their logarithms; None where nothing is known to err."""
    return jax.vmap(lambda *point: _step(parts, *point))(*points)


def _step(
    parts: tuple, length: Leaf, batch: Leaf, context: Leaf, chunk: Leaf
) -> tuple[Float[Array, ""], Float[Array, ""] | None]:
    """Seconds of one step, and the deviation of their logarithm; see `StepTable`."""
    case, scatter = parts
    device, architecture, draft_cost = case.device, case.architecture, case.draft
    decoding, plan = batch > 0, chain_plan(length)
    case = dataclasses.replace(case, workload=Workload(batch=jnp.maximum(batch, 1.0), context_tokens=context))
    draft, verify = plan_steps(case, plan)
    verify = dataclasses.replace(verify, speculating=jnp.where(length > 0, 1.0, 0.0))
    own, passes = draft_cost.architecture, jnp.asarray(as_float(draft_cost.passes))
    together = _with_chunk(verify, decoding, chunk)
    prompts_s = 0.0
    if own is None:
        target, drafted = price_steps(device, architecture, [together, draft], routing=case.routing)
    else:
        (target,) = price_steps(device, architecture, [together], routing=case.routing)
        later, first = steps_of_draft(case, draft)
        # The chunk is beside the step that follows the target's.
        drafted, beside = price_steps(for_draft(device), own, [later, _with_chunk(first, decoding, chunk)])
        more = beside.cost.total_s[0] - jnp.where(decoding, drafted.cost.total_s[0], 0.0)
        prompts_s = jnp.where(length > 0, jnp.minimum(passes, 1.0) * more, 0.0)
    draft_s = drafted.cost.total_s[0] * length * passes
    counted = {"batch": batch, "prompt_tokens": chunk, "devices": sharing_devices(device)}
    spent_s = engine_time(case.engine, plan, target=architecture, draft_cost=draft_cost, **counted)
    # Autoregressive steps have no terms but that of prompts.
    alone_s = prompts_time(case.engine, architecture, chunk, sharing_devices(device))
    terms_s = jnp.where(length > 0, spent_s, alone_s)
    seconds = target.cost.total_s + jnp.where(decoding, draft_s, 0.0) + prompts_s + terms_s
    seconds = jnp.where(decoding | (chunk > 0), seconds, 0.0)
    if scatter is None:
        return seconds, None
    drafts = jnp.where(decoding, length * passes, 0.0)
    alone = jax.tree.map(lambda leaf: leaf[0], drafted)
    errors = answer_times(
        device,
        plain=[(1.0, target)],
        answer=[(1.0, target), (drafts, alone)],
        engine_s=prompts_s + terms_s,
        scatter=jnp.where(length > 0, scatter, 0.0),
    )
    return seconds, cycle_numbers(errors, jnp.zeros(1), jnp.zeros((1, 0)))["cycle_s"].log_deviation


def _with_chunk(step: StepShape, decoding: Leaf, chunk: Leaf) -> StepShape:
    """The step with a chunk beside its sequences, or a chunk alone, of which the last token has logits."""
    own, alone = jnp.asarray(as_float(step.tokens)), jnp.maximum(chunk, 1.0)
    return dataclasses.replace(
        step,
        tokens=jnp.where(decoding, own + chunk / step.batch, alone),
        logit_tokens=jnp.where(decoding, as_float(step.logit_tokens), 1.0),
        visible_new_tokens=jnp.where(decoding, as_float(step.visible_new_tokens), (alone + 1.0) / 2.0),
    )


def step_seconds(
    table: StepTable, length: Int[Array, ""], batch: Int[Array, ""], context: Leaf, chunk: Leaf
) -> Float[Array, ""]:
    """Seconds of a step, interpolated linearly in context and chunk; beyond the table as at its end.

    Args:
        length, batch: indices.
        context, chunk: one number each.
    """
    by_context, of_context = _neighbours(table.contexts, context)
    by_chunk, of_chunk = _neighbours(table.chunks, chunk)
    # The four corners alone; `jnp.interp` of whole columns looks for its place in a loop of many small kernels.
    corners = table.seconds[length, batch, by_context[:, None], by_chunk]
    return of_chunk(*of_context(*corners))


def _neighbours(known: Float[Array, " point"], at: Leaf) -> tuple[Int[Array, 2], Callable[[Leaf, Leaf], Leaf]]:
    """Places of two neighbours in a list, and what becomes of values there; the numbers are those of `jnp.interp`."""
    last = known.shape[-1] - 1
    if last == 0:
        return jnp.zeros((2,), jnp.int32), lambda low, high: low
    above = jnp.clip(jnp.sum(known <= at, dtype=jnp.int32), 1, last)
    below, span = known[above - 1], known[above] - known[above - 1]

    def between(low: Leaf, high: Leaf) -> Leaf:
        value = low + ((at - below) / span) * (high - low)
        return jnp.where(at > known[last], high, value)

    return jnp.stack([above - 1, above]), between
