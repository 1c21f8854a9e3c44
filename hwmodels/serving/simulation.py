"""An engine that batches continuously, step by step, until every request has its tokens.

Its clock is a sum of two numbers, and what a request has waited is a difference from its arrival: steps of milliseconds count
in full however long the engine has run.

Before each step waiting requests take free slots, first come first served, as long as the keys and values of their whole prompt
and output fit beside those of all others. A step generates for every sequence whose prompt is processed, and processes up to
`chunk_tokens` of other prompts beside that, the earliest request first; the step that ends a prompt gives its first token.
With a draft, a sequence gains the accepted drafted tokens and one more.

Source: Yu et al. 2022 (Orca), iteration-level scheduling; Agrawal et al. 2023, arXiv:2308.16369, chunked prefill; Leviathan et
    al. 2023, arXiv:2211.17192, accepted tokens of a chain.
Departs: room for a request's output is kept from its beginning, so that none is ever put out again. The host takes no time
    beside the engine's terms in the table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hwmodels.device import Device
from hwmodels.network.architecture import Architecture, Footprint, Workload
from hwmodels.numerics.compensated_sums import CompensatedSum, compensated_sum
from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.serving.step_table import Engine, Served, Serving, Slots, StepTable, step_seconds
from hwmodels.speculation.draft_cost import COMPRESSED_COPY, DraftCost, held_with_draft

__all__ = [
    "PERCENTILES",
    "Latencies",
    "Requests",
    "begin_serving",
    "capacity_tokens",
    "change_if_needed",
    "crossing_rate",
    "drawn_lengths",
    "latencies",
    "poisson_requests",
    "sequence_tokens",
    "serve",
    "serve_further",
    "served_so_far",
    "with_rate",
]

# Requests: when they come, how long their prompts are, and how much is generated for each.


@flax.struct.dataclass
class Requests:
    """Requests in the order in which they come."""

    arrival_s: Float[Array, "*b request"]  # increasing, the first >= 0
    prompt_tokens: Float[Array, "*b request"]  # whole, >= 1
    output_tokens: Float[Array, "*b request"]  # whole, >= 1


def drawn_lengths(key: PRNGKeyArray, count: int, mean: Number, variation: Number) -> Float[Array, " request"]:
    """Whole numbers of tokens, lognormal about a mean.

    Args:
        count: static.
        mean: one number, >= 1.
        variation: one number, >= 0; standard deviation over mean. 0: all alike.
    Returns:
        "request", >= 1.
    """
    variance = jnp.log1p(jnp.asarray(as_float(variation)) ** 2)
    normal = jax.random.normal(key, (count,))
    drawn = as_float(mean) * jnp.exp(jnp.sqrt(variance) * normal - variance / 2.0)
    return jnp.maximum(jnp.round(drawn), 1.0)


def poisson_requests(
    key: PRNGKeyArray,
    count: int,
    *,
    rate_per_s: Number,
    prompt_tokens: Number,
    output_tokens: Number,
    prompt_variation: Number = 0.0,
    output_variation: Number = 0.0,
) -> Requests:
    """Requests of a Poisson process.

    Args:
        count: static; requests.
        rate_per_s: one number, > 0; the same draws at another rate are the same requests, closer together.
        prompt_tokens, output_tokens, prompt_variation, output_variation: see `drawn_lengths`.
    """
    gaps, prompts, outputs = jax.random.split(key, 3)
    return Requests(
        arrival_s=jnp.cumsum(jax.random.exponential(gaps, (count,))) / as_float(rate_per_s),
        prompt_tokens=drawn_lengths(prompts, count, prompt_tokens, prompt_variation),
        output_tokens=drawn_lengths(outputs, count, output_tokens, output_variation),
    )


def with_rate(requests: Requests, rate_per_s: Number) -> Requests:
    """The same requests, closer together or farther apart, so that as many come in a second on average."""
    arrival = requests.arrival_s
    span_s = jnp.maximum(arrival[..., -1:] - arrival[..., :1], jnp.finfo(arrival.dtype).tiny)
    mean_rate = (arrival.shape[-1] - 1) / span_s
    scaled = (arrival - arrival[..., :1]) * mean_rate / as_float(rate_per_s)
    return dataclasses.replace(requests, arrival_s=scaled)


# Room for requests beside the weights, counted in tokens: keys and values of each, and the states that each sequence keeps.


def capacity_tokens(
    device: Device, architecture: Architecture, *, footprint: Footprint, draft_cost: DraftCost = COMPRESSED_COPY
) -> Float[Array, ""]:
    """Tokens whose keys and values fit beside the weights, those of a draft of its own included; 0 if these do not fit.

    Of several devices: those of all replicas together, each of which holds its own. States of linear attention take room of
    this too: see `sequence_tokens`.

    Args:
        device, architecture, footprint, draft_cost: leaves are single numbers.
    Departs: layers with windows are taken to keep every token.
    """
    parts = {"footprint": footprint, "draft_cost": draft_cost}
    held = _held(device, architecture, 0.0, **parts) - _state_bytes(device, architecture, **parts)
    room = sum(as_float(tier.capacity_bytes) for tier in device.tiers) - held
    replicas = 1.0 if device.group is None else as_float(device.group.data_parallel)
    return replicas * jnp.maximum(jnp.asarray(room), 0.0) / _token_bytes(device, architecture, **parts)


def sequence_tokens(
    device: Device, architecture: Architecture, *, footprint: Footprint, draft_cost: DraftCost = COMPRESSED_COPY
) -> Float[Array, ""]:
    """Tokens whose keys and values take as much as the states of one sequence, whatever its length; 0 without any states.

    Args:
        device, architecture, footprint, draft_cost: leaves are single numbers.
    """
    parts = {"footprint": footprint, "draft_cost": draft_cost}
    return jnp.asarray(_state_bytes(device, architecture, **parts) / _token_bytes(device, architecture, **parts))


def _held(
    device: Device, architecture: Architecture, context: float, *, footprint: Footprint, draft_cost: DraftCost
) -> Leaf:
    """Bytes with one sequence of so many cached tokens."""
    load = Workload(batch=1.0, context_tokens=context)
    parts = {"workload": load, "footprint": footprint, "draft_cost": draft_cost}
    return held_with_draft(architecture, **parts, group=device.group)


def _state_bytes(device: Device, architecture: Architecture, *, footprint: Footprint, draft_cost: DraftCost) -> Leaf:
    return _held(device, architecture, 0.0, footprint=_without_weights(footprint), draft_cost=draft_cost)


def _token_bytes(device: Device, architecture: Architecture, *, footprint: Footprint, draft_cost: DraftCost) -> Leaf:
    """Of keys and values: a state is the same for every token, and single precision does not tell one token beside it."""
    own = draft_cost.architecture
    draft_cost = draft_cost if own is None else dataclasses.replace(draft_cost, architecture=_stateless(own))
    weightless = _without_weights(footprint)
    return _held(device, _stateless(architecture), 1.0, footprint=weightless, draft_cost=draft_cost)


def _stateless(architecture: Architecture) -> Architecture:
    """The same layers without what linear attention keeps of a sequence."""
    return dataclasses.replace(architecture, linear_value_heads=0.0, linear_conv_tokens=0.0)


def _without_weights(footprint: Footprint) -> Footprint:
    nothing = dict.fromkeys(footprint.target_weight_bits, 0.0)
    return dataclasses.replace(footprint, target_weight_bits=nothing, draft_weight_bits=nothing)


# What users of an engine see: time to the first token, time per further token, time of a whole request, and throughput.

#: Of every latency.
PERCENTILES = (50.0, 90.0, 99.0)


@flax.struct.dataclass
class Latencies:
    """Latencies by percentile and what the engine did, "*b"."""

    ttft_s: Float[Array, "*b percentile"]  # from arrival to the first token
    tpot_s: Float[Array, "*b percentile"]  # per further token, a mean of each request
    request_s: Float[Array, "*b percentile"]  # from arrival to the last token
    tokens_per_s: Float[Array, "*b"]  # generated for all requests, from the first arrival to the end
    requests_per_s: Float[Array, "*b"]  # that end, likewise
    mean_batch: Float[Array, "*b"]  # requests in the engine while it works
    utilisation: Float[Array, "*b"]  # share of the time that the engine is in steps


def latencies(requests: Requests, served: Served, *, warm_up: float = 0.1) -> Latencies:
    """Summary of one run; `vmap` for several.

    Args:
        requests, served: of one run.
        warm_up: static, in [0, 1); share of the requests, the first ones, whose latencies do not count, as they
            find an empty engine.
    """
    first = int(warm_up * requests.arrival_s.shape[-1])
    arrival, output = requests.arrival_s, requests.output_tokens
    further = jnp.maximum(output - 1.0, 1.0)
    tpot = jnp.where(output > 1, (served.request_s - served.ttft_s) / further, jnp.nan)
    span_s = served.end_s - arrival[0]

    def of(values: Leaf) -> Float[Array, " percentile"]:
        return jnp.nanpercentile(values[first:], jnp.asarray(PERCENTILES))

    return Latencies(
        ttft_s=of(served.ttft_s),
        tpot_s=of(tpot),
        request_s=of(served.request_s),
        tokens_per_s=jnp.sum(output) / span_s,
        requests_per_s=arrival.shape[-1] / span_s,
        mean_batch=served.held_slots_s / served.busy_s,
        utilisation=served.busy_s / span_s,
    )


def crossing_rate(rates_per_s: np.ndarray, without: np.ndarray, with_draft: np.ndarray) -> float | None:
    """The arrival rate from which a latency with a draft is no longer below the one without.

    Args:
        rates_per_s: "rate", increasing, > 0.
        without, with_draft: "rate", > 0.
    Returns:
        Where the logarithm of their ratio, straight between rates in their logarithm, rises to 0; None where the draft is
        slower from the lowest rate on, faster at all rates, or faster again at a rate beyond.
    """
    ratio, log_rate = np.log(with_draft / without), np.log(rates_per_s)
    place = int(np.argmax(ratio >= 0))  # the first one; 0 where there is none
    if place == 0 or np.any(ratio[place:] < 0):
        return None
    share = -ratio[place - 1] / (ratio[place] - ratio[place - 1])
    return float(np.exp(log_rate[place - 1] + share * (log_rate[place] - log_rate[place - 1])))


Kept = TypeVar("Kept")


def change_if_needed(needed: Bool[Array, ""], change: Callable[..., Kept], kept: Kept, *given: Any) -> Kept:
    """`change(kept, *given)` where it is needed, and `kept` as it is elsewhere.

    Args:
        needed: one truth value.
        change: gives a pytree in the form of `kept`. Where the work is not needed it gives `kept` back, since mapped lanes
            that do not need it go along with those that do. It uses no traced array but its arguments.
        given: pytrees of arrays.
    """

    @custom_vmap
    def changed(needed: Array, kept: Kept, given: tuple) -> Kept:
        return jax.lax.cond(needed, lambda: change(kept, *given), lambda: kept)

    @changed.def_vmap
    def _(size: int, mapped: list, needed: Array, kept: Kept, given: tuple) -> tuple[Kept, Any]:
        _, of_kept, of_given = mapped
        axes = jax.tree.map(lambda is_mapped: 0 if is_mapped else None, tuple(of_given))
        lanes = jax.tree.map(
            lambda leaf, is_mapped: leaf if is_mapped else jnp.broadcast_to(leaf, (size, *jnp.shape(leaf))),
            kept,
            of_kept,
        )
        changed = change_if_needed(jnp.any(needed), jax.vmap(change, in_axes=(0, *axes)), lanes, *given)
        return changed, jax.tree.map(lambda _: True, changed)

    return changed(needed, kept, given)


_INDEX = jnp.int32

#: Steps between two looks at whether all requests are served, at least. A mapped loop copies its state at each look, and with
#: it the times of all requests, so that one look in every step would take time in the square of their number.
_STEPS = 256

#: Of many requests, one look for as many of them: a copy of their times then takes no longer than the steps between.
_REQUESTS_PER_STEP = 256

#: Steps whose random numbers are drawn at once: step by step that is a loop of many small kernels in each of them.
_DRAWN_STEPS = 64


def serve(requests: Requests, table: StepTable, engine: Engine, key: PRNGKeyArray) -> Served:
    """Serve all requests.

    Args:
        requests: "request"; `vmap` for several rates.
        table: of the steps, with at least as many batches as the engine has slots.
        engine: no request may need more than its capacity, or none is served: its times are then infinite.
        key: of accepted tokens; every step draws anew.
    Returns:
        Times of each request.
    """
    return served_so_far(serve_further(begin_serving(requests, engine), requests, table, engine, key))


def begin_serving(requests: Requests, engine: Engine) -> Serving:
    """An engine that has done nothing yet. Args: see `serve`."""
    count, slots = requests.arrival_s.shape[-1], engine.slots
    never = jnp.full((count,), jnp.inf, requests.arrival_s.dtype)
    zero = jnp.zeros((), never.dtype)
    empty = Slots(jnp.full((slots,), -1, _INDEX), *(jnp.zeros((slots,), never.dtype) for _ in range(4)))
    served = Served(never, never, never, zero, zero, zero, jnp.zeros((), _INDEX))
    nothing = compensated_sum(zero)
    return Serving(nothing, nothing, nothing, jnp.zeros((), _INDEX), jnp.zeros((), _INDEX), empty, served)


def serve_further(
    state: Serving, requests: Requests, table: StepTable, engine: Engine, key: PRNGKeyArray, *, steps: int | None = None
) -> Serving:
    """Go on with some steps, which are the same steps however often one stops in between.

    Args:
        requests, table, engine, key: see `serve`.
        steps: static; about as many of them, or fewer where all requests are served; None: until they are.
    """
    count = requests.arrival_s.shape[-1]
    fits = jnp.max(_needed(requests, engine)) <= as_float(engine.capacity_tokens)
    blocks = -(-max(_STEPS, count // _REQUESTS_PER_STEP) // _DRAWN_STEPS)
    looks = jnp.iinfo(_INDEX).max if steps is None else -(-steps // (blocks * _DRAWN_STEPS))
    reached = _chances(engine)

    def block(_: int, state: Serving) -> Serving:
        # Until all requests are served every step does work, so that its number is known before it begins.
        numbers = state.served.steps + jnp.arange(_DRAWN_STEPS, dtype=_INDEX)
        uniform = jax.vmap(partial(_drawn, key, state.slots.context))(numbers)

        def step(place: int, state: Serving) -> Serving:
            state = change_if_needed(_may_enter(state, requests, engine), _entered, state, requests, engine)
            return _stepped(state, requests, table, engine, reached, uniform[place])

        return jax.lax.fori_loop(0, _DRAWN_STEPS, step, state)

    def further(going: tuple[Int[Array, ""], Serving]) -> tuple[Int[Array, ""], Serving]:
        return going[0] + 1, jax.lax.fori_loop(0, blocks, block, going[1])

    def goes_on(going: tuple[Int[Array, ""], Serving]) -> Bool[Array, ""]:
        return (going[0] < looks) & (going[1].done < count) & fits

    return jax.lax.while_loop(goes_on, further, (jnp.zeros((), _INDEX), state))[1]


def served_so_far(state: Serving) -> Served:
    """Times of the requests; those that wait have infinite ones."""
    sums = {"end_s": state.clock_s, "busy_s": state.busy_s, "held_slots_s": state.held_slots_s}
    return dataclasses.replace(state.served, **{name: total.high for name, total in sums.items()})


def _may_enter(state: Serving, requests: Requests, engine: Engine) -> Bool[Array, ""]:
    """Whether the next request takes a slot before this step; in most steps none does."""
    slots, left = state.slots, state.head < requests.arrival_s.shape[-1]
    free, place = slots.request < 0, _next(state, requests)
    fits = _needed(requests, engine, place) <= _room(slots, engine)
    arrived = state.clock_s.since(requests.arrival_s[place]) >= 0
    return left & (jnp.all(free) | (jnp.any(free) & fits & arrived))


def _next(state: Serving, requests: Requests) -> Int[Array, ""]:
    """Which request is the next one."""
    return jnp.minimum(state.head, requests.arrival_s.shape[-1] - 1)


def _needed(requests: Requests, engine: Engine, place: Int[Array, "*b"] | slice = slice(None)) -> Float[Array, "*b"]:
    """Tokens for which requests keep room."""
    return requests.prompt_tokens[place] + requests.output_tokens[place] + as_float(engine.sequence_tokens)


def _room(slots: Slots, engine: Engine) -> Float[Array, ""]:
    return as_float(engine.capacity_tokens) - jnp.sum(slots.held_tokens)


def _entered(state: Serving, requests: Requests, engine: Engine) -> Serving:
    return _admitted(_waited(state, requests), requests, engine)


def _waited(state: Serving, requests: Requests) -> Serving:
    """With nothing to do the engine waits for the next request."""
    idle, arrival = jnp.all(state.slots.request < 0), requests.arrival_s[_next(state, requests)]
    waits = idle & (state.clock_s.since(arrival) < 0)
    return state._replace(clock_s=jax.tree.map(partial(jnp.where, waits), compensated_sum(arrival), state.clock_s))


def _admitted(state: Serving, requests: Requests, engine: Engine) -> Serving:
    """Requests that have come take free slots in their order, as long as they fit."""
    count, slots = requests.arrival_s.shape[-1], state.slots
    offsets = jnp.arange(engine.slots, dtype=_INDEX)
    waiting = jnp.minimum(state.head + offsets, count - 1)
    needed = _needed(requests, engine, waiting)
    free = slots.request < 0
    may = (state.head + offsets < count) & (state.clock_s.since(requests.arrival_s[waiting]) >= 0)
    may = may & (jnp.cumsum(needed) <= _room(slots, engine)) & (offsets < jnp.sum(free, dtype=_INDEX))
    admitted = jnp.min(jnp.where(may, engine.slots, offsets))
    # The first free slot takes the first waiting request, and so on.
    rank = jnp.cumsum(free, dtype=_INDEX) - 1
    takes = free & (rank < admitted)
    chosen = jnp.minimum(state.head + jnp.maximum(rank, 0), count - 1)
    prompt, output = requests.prompt_tokens[chosen], requests.output_tokens[chosen]
    new = Slots(chosen, prompt, output, jnp.zeros_like(prompt), _needed(requests, engine, chosen))
    taken = Slots(*(jnp.where(takes, fresh, old) for fresh, old in zip(new, slots, strict=True)))
    place = jnp.where(takes, chosen, count)  # beyond the end: dropped
    waited = state.clock_s.since(requests.arrival_s[chosen])
    begun = state.served.wait_s.at[place].set(waited, mode="drop")
    return state._replace(
        head=state.head + admitted, slots=taken, served=dataclasses.replace(state.served, wait_s=begun)
    )


def _drawn(key: PRNGKeyArray, like: Float[Array, " slot"], step: Int[Array, ""]) -> Float[Array, " slot"]:
    """A step's random numbers, one for each slot."""
    return jax.random.uniform(jax.random.fold_in(key, step), like.shape, like.dtype)


def _chances(engine: Engine) -> Float[Array, "length position"]:
    """Of each number of drafted tokens, the chance that the draft is accepted up to a position; 0 behind its end."""
    positions = engine.conditional.shape[-1]
    drafted = jnp.arange(positions)[None] < jnp.arange(positions + 1)[:, None]
    return jax.vmap(jnp.cumprod)(jnp.where(drafted, engine.conditional[None], 0.0))


def _stepped(
    state: Serving,
    requests: Requests,
    table: StepTable,
    engine: Engine,
    reached: Float[Array, "length position"],
    uniform: Float[Array, " slot"],
) -> Serving:
    """One step of the engine; with all requests served, none. Args: reached: see `_chances`; uniform: see `_drawn`."""
    slots, served = state.slots, state.served
    active = slots.request >= 0
    generating = active & (slots.prompt_left <= 0)
    left = jnp.where(active, slots.prompt_left, 0.0)
    chunk = change_if_needed(jnp.any(left > 0), _chunks, jnp.zeros_like(left), left, slots.request, engine)
    batch = jnp.sum(generating, dtype=_INDEX)
    length = engine.draft_lengths[jnp.minimum(batch, engine.draft_lengths.shape[-1] - 1)]
    counted = jnp.where(batch > 0, generating, chunk > 0)
    counted_slots = jnp.maximum(jnp.sum(counted, dtype=slots.context.dtype), 1.0)
    context = jnp.sum(jnp.where(counted, slots.context, 0.0)) / counted_slots
    works = jnp.any(active)
    taken_s = jnp.where(works, step_seconds(table, length, batch, context, jnp.sum(chunk)), 0.0)
    clock_s = state.clock_s.plus(taken_s)

    accepted = jnp.sum(uniform[:, None] < reached[length][None], axis=-1, dtype=slots.context.dtype)
    ends_prompt = (chunk > 0) & (chunk >= slots.prompt_left)
    gained = jnp.where(generating, jnp.minimum(accepted + 1.0, slots.output_left), jnp.where(ends_prompt, 1.0, 0.0))
    output_left = slots.output_left - gained
    finished = active & (output_left <= 0) & (gained > 0)
    # The token that a step gives is read by the next one.
    moved = slots._replace(
        prompt_left=slots.prompt_left - chunk,
        output_left=output_left,
        context=slots.context + chunk + jnp.where(generating, gained, 0.0),
    )
    kept = moved._replace(
        request=jnp.where(finished, -1, slots.request), held_tokens=jnp.where(finished, 0.0, slots.held_tokens)
    )
    tells = jnp.any(ends_prompt | finished)
    served = change_if_needed(tells, _noted, served, requests, clock_s, slots.request, ends_prompt, finished)
    served = dataclasses.replace(served, steps=served.steps + works.astype(_INDEX))
    return Serving(
        clock_s=clock_s,
        busy_s=state.busy_s.plus(taken_s),
        held_slots_s=state.held_slots_s.plus(taken_s * jnp.sum(active, dtype=taken_s.dtype)),
        head=state.head,
        done=state.done + jnp.sum(finished, dtype=_INDEX),
        slots=kept,
        served=served,
    )


def _noted(
    served: Served,
    requests: Requests,
    clock_s: CompensatedSum,
    request: Int[Array, " slot"],
    ends_prompt: Bool[Array, " slot"],
    finished: Bool[Array, " slot"],
) -> Served:
    """With the times of first and last tokens."""
    count = requests.arrival_s.shape[-1]  # beyond the end: dropped
    since_arrival = clock_s.since(requests.arrival_s[jnp.maximum(request, 0)])
    return dataclasses.replace(
        served,
        ttft_s=served.ttft_s.at[jnp.where(ends_prompt, request, count)].set(since_arrival, mode="drop"),
        request_s=served.request_s.at[jnp.where(finished, request, count)].set(since_arrival, mode="drop"),
    )


def _chunks(
    nothing: Float[Array, " slot"], left: Float[Array, " slot"], request: Int[Array, " slot"], engine: Engine
) -> Float[Array, " slot"]:
    """Prompt tokens of each slot in this step: the earliest requests first, up to the budget; nothing if none are left."""
    budget, count = as_float(engine.chunk_tokens), left.shape[-1]
    # Requests enter in their order, and their prompts end in it: those that have some left follow one another. So each has its
    # place in a queue; comparing all slots with all would take time in their square.
    reads = left > 0
    first = jnp.min(jnp.where(reads, request, jnp.iinfo(_INDEX).max))
    place = jnp.where(reads, request - first, count)
    queue = jnp.zeros((count + 1,), left.dtype).at[place + 1].set(left, mode="drop")
    ahead = jnp.cumsum(queue)[place]
    return jnp.clip(budget - ahead, 0.0, left)
