"""Effective performance: accepted tokens per second as a roofline over the verification length, and whether to speculate.

All functions work on a grid of verification lengths x, the last axis "length"; leading axes "*b" are contexts, tasks, devices.
x counts every token of a verification, the root included; x = 1 verifies nothing and is autoregressive decoding. Tokens per
cycle AAT(x) come in as an array, from a law or from measured trees. The paper's cases are in `hwmodels.step.roofline_cases`,
what to make of several contexts and tasks in `hwmodels.speculation.verification_length`.

Source: Boosting the Performance of Tree-Based Speculative Decoding of LLMs on FPGAs, III-A and III-B, Eq. (1) to (8).
"""

from __future__ import annotations

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hwmodels.numerics.axes import as_arrays, same_rank
from hwmodels.numerics.scalars import Number, as_float

__all__ = [
    "Decision",
    "acceptance_rate",
    "decide",
    "discounted_performance",
    "effective_performance",
    "primary_performance",
    "ridge_length",
]


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
