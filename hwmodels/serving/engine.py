"""An engine that serves: how it schedules, what it holds between two steps, and what became of its requests."""

from __future__ import annotations

from typing import NamedTuple

import flax.struct
from jaxtyping import Array, Float, Int

from hwmodels.numerics.compensated_sums import CompensatedSum
from hwmodels.numerics.scalars import Leaf

__all__ = ["Engine", "Served", "Serving", "Slots"]


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
