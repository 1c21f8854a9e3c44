"""The rules of chain verification: what is accepted, and what is drawn where a draft token is refused.

With these rules the output has the target's distribution whatever the draft is; greedy decoding is the case in which both
distributions are one-hot, so no second rule exists.

Source: Leviathan et al. 2023, arXiv:2211.17192, Algorithm 1; Cassandra, Eq. (1).
"""

from __future__ import annotations

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from jaxspec.checks import check_temperature, check_traced_count


class Verdict(NamedTuple):
    """Outcome of one verification.

    Attributes:
        accepted: draft tokens accepted, 0 to the draft length.
        next_token: the token that follows them: drawn from the residual, or the bonus token after a full acceptance.
    """

    accepted: Int[Array, ""]
    next_token: Int[Array, ""]


def token_distribution(
    logits: Float[Array, "*b vocab"], temperature: Float[Array, ""] | float, greedy: bool
) -> Float[Array, "*b vocab"]:
    """Probabilities to decode with: softmax(logits / temperature), or one-hot at the largest logit (first on a tie).

    Raises:
        ValueError: when sampling, a temperature that is not finite and above 0; a traced one gives meaningless numbers.
    """
    check_temperature(temperature, greedy)
    if greedy:
        return jax.nn.one_hot(jnp.argmax(logits, axis=-1), logits.shape[-1], dtype=logits.dtype)
    return jax.nn.softmax(logits / temperature, axis=-1)


def acceptance_probability(
    target: Float[Array, "*b vocab"], draft: Float[Array, "*b vocab"]
) -> Float[Array, "*b vocab"]:
    """Probability that each token, once drafted, is accepted: min(1, p / q); 1 where it is never drafted."""
    drafted = draft > 0
    return jnp.where(drafted, jnp.minimum(target / jnp.where(drafted, draft, 1.0), 1.0), 1.0)


def residual_distribution(
    target: Float[Array, "*b vocab"], draft: Float[Array, "*b vocab"]
) -> Float[Array, "*b vocab"]:
    """What to draw from after a refusal: max(p − q, 0), normalised; p itself where nothing is left (then p = q)."""
    excess = jnp.maximum(target - draft, 0.0)
    total = jnp.sum(excess, axis=-1, keepdims=True)
    return jnp.where(total > 0, excess / jnp.where(total > 0, total, 1.0), target)


def verify_chain(
    target: Float[Array, "width vocab"],
    draft: Float[Array, "width vocab"],
    drafted: Int[Array, " width"],
    draft_length: Int[Array, ""],
    uniforms: Float[Array, " width"],
    next_key: Key[Array, ""],
) -> Verdict:
    """Accept a prefix of a drafted chain and draw the token after it.

    Args:
        target, draft: probabilities at each place of the window; row i of both is what token i was judged and drawn by.
        drafted: token i of the chain; places from `draft_length` on are padding.
        draft_length: 0 to width − 1: the last place is that of the bonus token.
        uniforms: in [0, 1), one per place.
    Raises:
        ValueError: a draft length out of range; a traced one is not checked, and gives a meaningless token.
    """
    chex.assert_rank(target, 2)
    chex.assert_equal_shape([target, draft])
    chex.assert_equal_shape([drafted, uniforms])
    chex.assert_shape(drafted, (target.shape[0],))
    width, vocab = target.shape
    check_traced_count("draft_length", draft_length, least=0, most=width - 1)
    place = jnp.arange(width)
    p = jnp.take_along_axis(target, drafted[:, None], axis=-1)[:, 0]
    q = jnp.take_along_axis(draft, drafted[:, None], axis=-1)[:, 0]
    # u < p / q without the division; p = 0 never passes, p >= q always does.
    passed = (uniforms * q < p) & (place < draft_length)
    accepted = jnp.sum(jnp.cumprod(passed.astype(jnp.int32)))
    # After a full acceptance nothing was drafted at the next place: the residual of p against zero is p.
    opposed = jnp.where(accepted < draft_length, draft[accepted], jnp.zeros(vocab, draft.dtype))
    residual = residual_distribution(target[accepted], opposed)
    next_token = jax.random.categorical(next_key, jnp.log(residual))
    return Verdict(accepted=accepted, next_token=next_token)
