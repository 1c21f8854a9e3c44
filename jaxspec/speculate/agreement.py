"""Agreement of a draft's next tokens with the target's, from the hidden states of both.

Logits of a vocabulary of 150,000 tokens take a hundred times the memory of the hidden states that they follow from, so both are
made for some tokens at a time, and again in the backward pass. Each piece has tokens of every text: where texts are split over
devices, each device makes the logits of its own, and not those of all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxspec.speculate.sampling import Decoding, token_distribution

__all__ = ["Agreement", "agreement"]

#: Logits that exist at once, of draft and target each.
_LOGITS = 1 << 24


class Agreement(NamedTuple):
    """Target p and draft q at each place.

    Attributes:
        accepted: min(1, q/p) at the text's own next token.
        overlap: the sum of min(p, q).
        kl: KL(p || q) at temperature 1, nats.
        cross_entropy: of the draft on the text's next token at temperature 1, nats.
    """

    accepted: Float[Array, "*b"]
    overlap: Float[Array, "*b"]
    kl: Float[Array, "*b"]
    cross_entropy: Float[Array, "*b"]


def agreement(
    target: Float[Array, "*b hidden"],
    draft: Float[Array, "*b hidden"],
    next_token: Int[Array, "*b"],
    logits_of: tuple[Callable[[Array], Array], Callable[[Array], Array]],
    *,
    vocab_size: int,
    decoding: Decoding,
) -> Agreement:
    """Of every place.

    Args:
        logits_of: "... hidden" -> "... vocab", of target and draft.
        decoding: how tokens are chosen; see `token_distribution`.
    """
    places, size = next_token.size, max(1, _LOGITS // vocab_size)

    def of_some(target: Array, draft: Array, next_token: Array) -> Agreement:
        return _of_logits(logits_of[0](target), logits_of[1](draft), next_token, decoding)

    if places <= size:
        return of_some(target, draft, next_token)
    # More texts than a piece has places are one after the other.
    texts = next_token.shape[0] if next_token.shape[0] <= size else 1
    of_each = places // texts
    pieces = -(-of_each // (size // texts))
    width = -(-of_each // pieces)

    def in_pieces(x: Array, *rest: int) -> Array:
        # What fills the last piece is thrown away.
        filled = jnp.pad(
            x.reshape(texts, of_each, *rest), [(0, 0), (0, pieces * width - of_each), *[(0, 0)] * len(rest)]
        )
        return jnp.moveaxis(filled.reshape(texts, pieces, width, *rest), 1, 0)

    channels = target.shape[-1]
    inputs = in_pieces(target, channels), in_pieces(draft, channels), in_pieces(next_token)
    pieces = jax.lax.map(jax.checkpoint(lambda piece: of_some(*piece)), inputs)
    whole = lambda x: jnp.moveaxis(x, 0, 1).reshape(texts, -1)[:, :of_each].reshape(next_token.shape)
    return jax.tree.map(whole, pieces)


def _of_logits(
    target: Float[Array, "*b vocab"], draft: Float[Array, "*b vocab"], next_token: Int[Array, "*b"], decoding: Decoding
) -> Agreement:
    at_next = lambda x: jnp.take_along_axis(x, next_token[..., None], axis=-1)[..., 0]
    p, q = token_distribution(target, decoding), token_distribution(draft, decoding)
    log_p, log_q = jax.nn.log_softmax(target), jax.nn.log_softmax(draft)
    p_next, q_next = at_next(p), at_next(q)
    return Agreement(
        accepted=jnp.where(p_next > 0, jnp.minimum(q_next / jnp.where(p_next > 0, p_next, 1.0), 1.0), 0.0),
        overlap=jnp.sum(jnp.minimum(p, q), axis=-1),
        kl=jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1),
        cross_entropy=-at_next(log_q),
    )
