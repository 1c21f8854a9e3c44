"""Verification lengths beyond one workload: of reference configurations, of several tasks at once, and along a generation.

Source: Boosting the Performance of Tree-Based Speculative Decoding of LLMs on FPGAs, III-B.3 (dynamic switching), IV-B
    (original and naive set), IV-C (one length for all tasks).
"""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num

from hwmodels.numerics.scalars import Number, as_arrays, as_float, same_rank, with_rank

__all__ = [
    "Decision",
    "Generation",
    "ReferenceLength",
    "Schedule",
    "UnifiedLength",
    "acceptance_rate",
    "best_schedule",
    "decide",
    "discounted_performance",
    "effective_performance",
    "generation_time",
    "geometric_mean_tokens",
    "naive_length",
    "primary_performance",
    "ridge_length",
    "schedule_time",
    "unified_length",
]

# Effective performance: accepted tokens per second as a roofline over the verification length, and whether to speculate.


def _like(lengths: Number, numbers: Array) -> Array:
    """A grid of lengths in the precision of the numbers that it meets."""
    return jnp.asarray(as_float(lengths), numbers.dtype)


def primary_performance(lengths: Number, verify_s: Number) -> Float[Array, "... length"]:
    """Tokens that the target processes per second, from explicit times: P(x) = x / T_v(x).

    Args:
        lengths, verify_s: "*b length"; tokens, and seconds > 0 of one verification.
    Source: Eq. (1), by its definition.
    """
    seconds = jnp.asarray(as_float(verify_s))
    length, seconds = same_rank(_like(lengths, seconds), seconds)
    return length / seconds


def ridge_length(lengths: Number, verify_s: Number) -> Float[Array, "*b"]:
    """Where the roofs cross: the length at which the memory's, x P(first) / x(first), reaches the highest performance.

    Args:
        lengths: "*b length", the smallest first.
        verify_s: "*b length", > 0.
    Returns:
        "*b", tokens; need not lie on the grid. If no verification is bound by arithmetic it is the last length.
    Source: Eq. (1) with b = 0, as Eq. (13) has it.
    Gradient: that of the length of highest performance, which itself is piecewise constant.
    """
    performance = primary_performance(lengths, verify_s)
    first = performance[..., 0] / _like(lengths, performance)[..., 0]
    return jnp.max(performance, axis=-1) / first


def discounted_performance(lengths: Number, verify_s: Number, draft_s: Number) -> Float[Array, "... length"]:
    """Tokens that are processed per second when drafting takes its time as well: x / (T_v(x) + T_d(x)).

    Args:
        lengths, verify_s, draft_s: "*b length"; `draft_s` >= 0 is all drafting of a cycle.
    Source: Eq. (2).
    """
    seconds = jnp.asarray(as_float(verify_s)) + as_float(draft_s)
    length, seconds = same_rank(_like(lengths, seconds), seconds)
    return length / seconds


def acceptance_rate(lengths: Number, accepted_tokens: Number) -> Float[Array, "... length"]:
    """Share of the processed tokens that are gained: AAT(x) / x.

    Args:
        lengths, accepted_tokens: "*b length"; tokens gained per cycle, the verification's own included.
    Source: Eq. (5).
    """
    accepted = jnp.asarray(as_float(accepted_tokens))
    length, accepted = same_rank(_like(lengths, accepted), accepted)
    return accepted / length


def effective_performance(accepted_tokens: Number, verify_s: Number, draft_s: Number) -> Float[Array, "... length"]:
    """Tokens gained per second: AAT(x) / (T_v(x) + T_d(x)).

    Args:
        accepted_tokens, verify_s, draft_s: "*b length".
    Source: Eq. (6) and (7).
    """
    accepted, verify_s, draft_s = as_arrays(accepted_tokens, verify_s, draft_s)
    return accepted / (verify_s + draft_s)


@flax.struct.dataclass
class Decision:
    """Whether to speculate, and how; leaves are "*b"."""

    speculate: Bool[Array, "*b"]  # False: autoregressive decoding is as fast or faster
    length: Float[Array, "*b"]  # tokens; 1 where not speculating
    tokens_per_s: Float[Array, "*b"]  # of what was decided
    speedup: Float[Array, "*b"]  # over autoregressive decoding, >= 1
    best_index: Int[Array, "*b"]  # of the best speculative length on the grid, whether or not it pays
    best_length: Float[Array, "*b"]
    best_speedup: Float[Array, "*b"]  # below 1 where speculation does not pay


def decide(lengths: Number, performance: Number, autoregressive_s: Number) -> Decision:
    """The length of highest effective performance, or not to speculate.

    Args:
        lengths: "length" or "*b length", tokens.
        performance: "*b length", tokens/s, as `effective_performance` gives it.
        autoregressive_s: "*b", > 0; time of one autoregressive step, 1 / P(1).
    Returns:
        leaves "*b". The first of several equal lengths.
    Source: Eq. (8), and the rule below it.
    Departs: a speedup of exactly 1 is no reason to speculate.
    Gradient: that of the chosen length, which itself is piecewise constant.
    """
    performance = jnp.asarray(as_float(performance))
    length = jnp.broadcast_to(_like(lengths, performance), performance.shape)
    chosen = jnp.argmax(performance, axis=-1)
    best = jnp.take_along_axis(performance, chosen[..., None], axis=-1)[..., 0]
    best_length = jnp.take_along_axis(length, chosen[..., None], axis=-1)[..., 0]
    own = 1.0 / jnp.broadcast_to(jnp.asarray(as_float(autoregressive_s), performance.dtype), best.shape)
    pays = best > own
    return Decision(
        speculate=pays,
        length=jnp.where(pays, best_length, 1.0),
        tokens_per_s=jnp.where(pays, best, own),
        speedup=jnp.where(pays, best / own, 1.0),
        best_index=chosen,
        best_length=best_length,
        best_speedup=best / own,
    )


@flax.struct.dataclass
class ReferenceLength:
    """A length that a rule picks from the grid; leaves are "*b"."""

    length: Float[Array, "*b"]
    index: Int[Array, "*b"]
    found: Bool[Array, "*b"]  # False: no length meets the rule, and the last one is given


def _pick(lengths: Number, index: Array, shape: tuple[int, ...]) -> Array:
    length = jnp.broadcast_to(jnp.asarray(as_float(lengths)), shape)
    return jnp.take_along_axis(length, index[..., None], axis=-1)[..., 0]


def naive_length(lengths: Number, accepted_tokens: Number, *, slope: Number = 0.02) -> ReferenceLength:
    """The paper's "naive set": the first length after which another verified token gains less than `slope` tokens.

    Args:
        lengths: "length" or "*b length", rising; two or more.
        accepted_tokens: "*b length".
        slope: "*b" or one number; tokens per cycle and verified token. 0.02 is the paper's 2 %.
    Source: IV-B: "verification length where the AAT curve slope < 2 %", whose unit the paper does not say.
    Departs: the unit. As a share of AAT(x) the rule would end at about a quarter of the lengths that Table I prints.
    """
    accepted = jnp.asarray(as_float(accepted_tokens))
    length = jnp.broadcast_to(jnp.asarray(as_float(lengths), accepted.dtype), accepted.shape)
    least = with_rank(jnp.asarray(as_float(slope), accepted.dtype)[..., None], accepted.ndim)
    flat = jnp.diff(accepted) / jnp.diff(length) < least
    meets = jnp.any(flat, axis=-1)
    index = jnp.where(meets, jnp.argmax(flat, axis=-1), accepted.shape[-1] - 1)
    return ReferenceLength(_pick(length, index, accepted.shape), index, meets)


def geometric_mean_tokens(accepted_tokens: Number) -> Float[Array, "... length"]:
    """One curve for several tasks: the geometric mean of their tokens per cycle.

    Args:
        accepted_tokens: "*b task length", > 0.
    Returns:
        "*b length".
    Source: IV-C.
    """
    return jnp.exp(jnp.mean(jnp.log(jnp.asarray(as_float(accepted_tokens))), axis=-2))


@flax.struct.dataclass
class UnifiedLength:
    """One decision for all tasks, and what it costs each of them."""

    unified: Decision  # on the mean curve, leaves "*b"
    own: Decision  # each task's best, leaves "*b task"
    speedup: Float[Array, "*b task"]  # of each task with the unified decision
    loss: Float[Array, "*b task"]  # share of its own best speedup that a task loses, in [0, 1)


def unified_length(
    lengths: Number, accepted_tokens: Number, *, cycle_s: Number, autoregressive_s: Number
) -> UnifiedLength:
    """The decision on the geometric mean of the tasks' curves, compared with deciding for each task.

    Args:
        lengths: "length" or "*b length".
        accepted_tokens: "*b task length", > 0.
        cycle_s: "*b length", > 0; drafting and verification, the same for all tasks.
        autoregressive_s: "*b", > 0.
    Source: IV-C, Table II; the decision by Eq. (8).
    """
    accepted = jnp.asarray(as_float(accepted_tokens))
    cycle = jnp.broadcast_to(jnp.asarray(as_float(cycle_s), accepted.dtype), accepted[..., 0, :].shape)
    step = jnp.broadcast_to(jnp.asarray(as_float(autoregressive_s), accepted.dtype), cycle.shape[:-1])
    unified = decide(lengths, geometric_mean_tokens(accepted) / cycle, step)
    performance = accepted / cycle[..., None, :]
    tasks = jnp.broadcast_to(jnp.asarray(as_float(lengths), accepted.dtype), cycle.shape)[..., None, :]
    own = decide(tasks, performance, step[..., None])
    index = jnp.broadcast_to(unified.best_index[..., None, None], (*accepted.shape[:-1], 1))
    speedup = jnp.take_along_axis(performance, index, axis=-1)[..., 0] * step[..., None]
    speedup = jnp.where(unified.speculate[..., None], speedup, 1.0)
    return UnifiedLength(unified=unified, own=own, speedup=speedup, loss=1.0 - speedup / own.speedup)


@flax.struct.dataclass
class Schedule:
    """Option by context: `option` i from context `start` i until the next start."""

    start: Float[Array, " entry"]  # tokens, rising; the first one counts as -infinity
    option: Int[Array, " entry"]  # column of a table of seconds per token


def best_schedule(contexts: Num[Array, " context"], token_s: Float[Array, "context option"]) -> Schedule:
    """The fastest option at each context of the grid; a switch happens where the two options' lines cross.

    Args:
        contexts: "context", rising, tokens.
        token_s: "context option", > 0; seconds per generated token. One of the columns may be autoregressive decoding.
    Returns:
        one entry per context; an entry that changes nothing starts at its context.
    Source: III-B.3.
    Departs: a third option that is fastest only between two contexts of the grid is not seen.
    Gradient: that of the crossings; which option is fastest is piecewise constant.
    """
    context, seconds = jnp.asarray(as_float(contexts)), jnp.asarray(as_float(token_s))
    option = jnp.argmin(seconds, axis=-1)
    before, after = option[:-1], option[1:]
    rows = jnp.arange(len(before))
    # How much slower the later option is at the left end, and how much faster at the right one.
    left = seconds[rows, after] - seconds[rows, before]
    right = seconds[rows + 1, before] - seconds[rows + 1, after]
    total = left + right
    share = jnp.where(total > 0, left / jnp.where(total > 0, total, 1.0), 1.0)
    share = jnp.where(before == after, 1.0, share)
    crossing = context[:-1] + share * (context[1:] - context[:-1])
    return Schedule(start=jnp.concatenate([context[:1], crossing]), option=option)


def schedule_time(
    contexts: Num[Array, " context"],
    token_s: Float[Array, "context option"],
    *,
    schedule: Schedule,
    first_context: Number,
    tokens: Number,
) -> Float[Array, ""]:
    """Seconds to generate `tokens` tokens from a context that they lengthen, one option after another.

    Args:
        contexts: "context", rising, two or more.
        token_s: "context option", > 0; straight lines between the contexts of the grid, and on beyond its ends.
        schedule: any; see `best_schedule`.
        first_context: one number, >= 0; tokens in the cache before the first one.
        tokens: one number, >= 0, real.
    Returns:
        the integral of seconds per token over the context, exact for these lines.
    Gradient: right in all inputs; in a start of the schedule it is the difference of the two options' lines there.
    """
    context, seconds = jnp.asarray(as_float(contexts)), jnp.asarray(as_float(token_s))
    first = jnp.asarray(as_float(first_context), seconds.dtype)
    last = first + jnp.asarray(as_float(tokens), seconds.dtype)
    knots = jnp.concatenate([context.astype(seconds.dtype), schedule.start.astype(seconds.dtype)])
    ends = jnp.sort(jnp.concatenate([first[None], jnp.clip(knots, first, last), last[None]]))
    low, high = ends[:-1], ends[1:]
    middle = (low + high) / 2
    entry = jnp.clip(jnp.searchsorted(schedule.start, middle, side="right") - 1, 0)
    used = schedule.option[entry]
    place = jnp.clip(jnp.searchsorted(context, middle, side="right") - 1, 0, len(context) - 2)
    rise = (seconds[place + 1, used] - seconds[place, used]) / (context[place + 1] - context[place])
    return jnp.sum((high - low) * (seconds[place, used] + rise * (middle - context[place])))


@flax.struct.dataclass
class Generation:
    """A generation by a schedule, beside each single option all the way; leaves are single numbers but for one."""

    total_s: Float[Array, ""]
    tokens_per_s: Float[Array, ""]
    option_s: Float[Array, " option"]  # total time of each option from beginning to end
    best_fixed: Int[Array, ""]
    best_fixed_s: Float[Array, ""]
    speedup_vs_best_fixed: Float[Array, ""]
    speedup_vs_ar: Float[Array, ""]


def generation_time(
    contexts: Num[Array, " context"],
    token_s: Float[Array, "context option"],
    *,
    first_context: Number,
    tokens: Number,
    schedule: Schedule | None = None,
) -> Generation:
    """Time of generating `tokens` tokens by a schedule, compared with fixed lengths and with autoregressive decoding.

    Args:
        contexts, token_s, first_context, tokens: as `schedule_time`; tokens > 0. Column 0 is autoregressive decoding, the
            others are verification lengths. `vmap` for several tables.
        schedule: the best one unless given.
    Source: III-B.3; Algorithm 1, line 6.
    """
    chosen = best_schedule(contexts, token_s) if schedule is None else schedule
    seconds = jnp.asarray(as_float(token_s))

    def time(entries: Schedule) -> Array:
        return schedule_time(contexts, seconds, schedule=entries, first_context=first_context, tokens=tokens)

    total = time(chosen)
    start = chosen.start[:1]
    fixed = jax.vmap(lambda option: time(Schedule(start, option[None])))(jnp.arange(seconds.shape[-1]))
    best = jnp.argmin(fixed)
    return Generation(
        total_s=total,
        tokens_per_s=as_float(tokens) / total,
        option_s=fixed,
        best_fixed=best,
        best_fixed_s=fixed[best],
        speedup_vs_best_fixed=fixed[best] / total,
        speedup_vs_ar=fixed[0] / total,
    )
