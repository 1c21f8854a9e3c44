"""Cycles that decoding a known text takes in expectation: the renewal of cycles along it."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from hwmodels.numerics.exact_products import EXACT
from jaxspec.checks import check_count

__all__ = ["CycleStatistics", "expected_cycles"]


class CycleStatistics(NamedTuple):
    """Expected cycles and accepted tokens of decoding a known text with drafts of a fixed length.

    Attributes:
        cycles: expected cycles given that decoding puts out this text; over texts drawn from the target their mean is the
            expected number of cycles.
        survival: per text, sum over its cycles of P(tokens 1..d accepted), tokens behind the text's end left out; divided by
            `cycles` it is a mean.
        generated: expected tokens; the last cycle may run over what was asked for, but not over the text's end.
    """

    cycles: Float[Array, " batch"]
    survival: Float[Array, "batch depth"]
    generated: Float[Array, " batch"]


def expected_cycles(
    survival: Float[Array, "batch start depth"],
    draft_length: int,
    num_tokens: int,
    *,
    ends: Int[Array, " batch"] | None = None,
) -> CycleStatistics:
    """Renewal of cycles along a text: where cycles start decides which roots count, and how often.

    A cycle that starts at position t and accepts n tokens makes the next start at t + n + 1. Cycles start after refused
    tokens, so roots are not spread evenly over the text: the plain mean over positions would be biased.

    Args:
        survival: from `all_starts`, whose first start is the prompt's last token.
        draft_length: static, 1 to the depth of `survival`.
        num_tokens: static; decoding ends with the cycle that reaches this many tokens.
        ends: tokens of each text, the one that stops it included, where it stops before its last start; None: none stops.
    Raises:
        ValueError: fewer starts than tokens, or a number out of its range.
    """
    check_count("num_tokens", num_tokens)
    check_count("draft_length", draft_length, most=survival.shape[-1])
    if survival.shape[1] < num_tokens:
        raise ValueError(f"{survival.shape[1]} starts cannot tell about {num_tokens} tokens; measure a longer text")
    return _renewal(survival, ends, draft_length, num_tokens)


@partial(jax.jit, static_argnums=(2, 3))
def _renewal(
    survival: Float[Array, "batch start depth"], ends: Int[Array, " batch"] | None, draft_length: int, num_tokens: int
) -> CycleStatistics:
    depth = survival[..., :draft_length]
    at_least = jnp.concatenate([jnp.ones_like(depth[..., :1]), depth, jnp.zeros_like(depth[..., :1])], axis=-1)
    exactly = at_least[..., :-1] - at_least[..., 1:]  # P(n accepted), n = 0..draft_length

    batch = survival.shape[0]
    start = jnp.arange(num_tokens)
    ends = jnp.full(batch, num_tokens + draft_length + 1) if ends is None else ends.astype(start.dtype)

    def advance(visits, t):
        visit = jnp.where(t < ends, visits[:, 0], 0.0)
        spread = visit[:, None] * jax.lax.dynamic_index_in_dim(exactly, t, axis=1, keepdims=False)
        shifted = jnp.concatenate([visits[:, 1:], jnp.zeros_like(visits[:, :1])], axis=1)
        return shifted + spread, visit

    first = jnp.zeros((batch, draft_length + 1), survival.dtype).at[:, 0].set(1.0)
    _, visits = jax.lax.scan(advance, first, start)
    visits = visits.T  # "batch start"
    used = depth[:, : visits.shape[1]]
    # At [.., start, depth], how many tokens there are up to a drafted one.
    upto = (start[:, None] + 1 + jnp.arange(draft_length)[None])[None]
    inside = upto <= ends[:, None, None]
    # A drafted token that stops the text takes the place of the one that a cycle adds to those accepted.
    stopping = upto == ends[:, None, None]
    total = lambda chosen: jnp.einsum("bs,bsd->bd", visits, jnp.where(chosen, used, 0.0), precision=EXACT)
    cycles, accepted = jnp.sum(visits, axis=1), total(inside)
    generated = cycles + jnp.sum(accepted, axis=1) - jnp.sum(total(stopping), axis=1)
    return CycleStatistics(cycles=cycles, survival=accepted, generated=generated)
