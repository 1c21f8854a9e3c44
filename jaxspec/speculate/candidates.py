"""A draft's candidates after each token it was asked about: its likeliest, or sampled without replacement."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from jaxspec.speculate.sampling import Decoding, token_distribution
from jaxspec.speculate.steps import largest
from jaxspec.speculate.tree_rules import sample_candidates

__all__ = ["CandidateLaw", "Candidates", "propose"]

#: How candidates are chosen: see `jaxspec.speculate.tree_rules`.
CandidateLaw: TypeAlias = Literal["top", "sampled"]


class Candidates(NamedTuple):
    """Tokens that a draft proposes after some tokens, and how likely it holds them.

    Attributes:
        tokens: all different, rank 0 first.
        distribution: what they were sampled from; None where they are the likeliest.
        log_probability: the draft's, of each.
    """

    tokens: Int[Array, "batch token candidate"]
    distribution: Float[Array, "batch token vocab"] | None
    log_probability: Float[Array, "batch token candidate"]


def propose(
    logits: Float[Array, "batch token vocab"],
    keys: Key[Array, "batch token"] | None,
    decoding: Decoding,
    *,
    count: int,
    law: CandidateLaw,
) -> Candidates:
    """The first `count` candidates after each token.

    Args:
        keys: one per token, read only where candidates are sampled.
        decoding: of the distribution that is sampled from; the likeliest tokens are those of the logits themselves, with
            their probabilities at temperature 1.
    Raises:
        ValueError: more candidates than the vocabulary has tokens.
    """
    if not 1 <= count <= logits.shape[-1]:
        raise ValueError(f"{count} candidates came; a vocabulary of {logits.shape[-1]} allows 1 to that many")
    if law == "top":
        # By the logits: their logarithms of probability may tie where they differ.
        tokens = largest(logits, count)[1]
        log_q = jnp.take_along_axis(jax.nn.log_softmax(logits, axis=-1), tokens, axis=-1)
        return Candidates(tokens.astype(jnp.int32), None, log_q)
    distribution = token_distribution(logits, decoding)
    one = lambda q, key: sample_candidates(q, key, count)
    assert keys is not None
    tokens = jax.vmap(jax.vmap(one))(distribution, keys).astype(jnp.int32)
    chance = jnp.take_along_axis(distribution, tokens, axis=-1)
    return Candidates(tokens, distribution, jnp.log(chance))
