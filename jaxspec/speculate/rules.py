"""The rules of one drafted token: when it is accepted, and what is drawn where it is refused.

With these rules the output has the target's distribution whatever the draft is; greedy decoding is the case in which both
distributions are one-hot, so no second rule exists.

Source: Leviathan et al. 2023, arXiv:2211.17192, Algorithm 1; Cassandra, Eq. (1).
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["acceptance_probability", "residual_distribution"]


def acceptance_probability(
    target: Float[Array, "*b vocab"], draft: Float[Array, "*b vocab"]
) -> Float[Array, "*b vocab"]:
    """Probability that each token, once drafted, is accepted: min(1, p / q); 1 where it is never drafted."""
    drafted = draft > 0
    return jnp.where(drafted, jnp.minimum(target / jnp.where(drafted, draft, 1.0), 1.0), 1.0)


def residual_distribution(
    target: Float[Array, "*b vocab"], draft: Float[Array, "*b vocab"]
) -> Float[Array, "*b vocab"]:
    """Distribution to draw from after a refusal: max(p − q, 0), normalised; p itself where nothing is left (then p = q)."""
    excess = jnp.maximum(target - draft, 0.0)
    total = jnp.sum(excess, axis=-1, keepdims=True)
    return jnp.where(total > 0, excess / jnp.where(total > 0, total, 1.0), target)
