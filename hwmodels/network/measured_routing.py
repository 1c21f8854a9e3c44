"""A routing from the choices that a router made."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from hwmodels.network.routing import Routing

__all__ = ["measured_routing"]


def measured_routing(choices: Int[Array, "sequence token layer chosen"], *, num_experts: int) -> Routing:
    """Popularity and correlation of a router's choices, pooled over layers.

    Experts of different layers have nothing in common but their rank: popularity is by rank within the layer, the most popular
    first, on average over layers. The correlation is that for which neighbouring tokens share as many experts as they do.

    Args:
        choices: numbers of the experts that each token chose, all different, of neighbouring tokens of each sequence.
        num_experts: static, > chosen.
    Returns:
        popularity " expert", sums to 1; correlation in [0, 1], 0 for a single token.
    Raises:
        ValueError: as many experts as are chosen, or fewer.
    """
    chosen, tokens = choices.shape[-1], choices.shape[1]
    if num_experts <= chosen:
        raise ValueError(f"num_experts is {num_experts}; it must be more than the {chosen} that a token chooses")
    made = jnp.sum(jax.nn.one_hot(choices, num_experts), axis=-2)  # sequence token layer expert
    frequency = jnp.mean(made, axis=(0, 1))  # layer expert
    ranked = jnp.mean(jnp.sort(frequency, axis=-1, descending=True), axis=0)
    return Routing(
        popularity=ranked / chosen, correlation=_correlation(made, frequency) if tokens > 1 else jnp.zeros(())
    )


def _correlation(
    made: Float[Array, "sequence token layer expert"], frequency: Float[Array, "layer expert"]
) -> Float[Array, ""]:
    """Shared experts of neighbours beyond those of strangers, over the most that could be."""
    shared = jnp.sum(jnp.mean(made[:, 1:] * made[:, :-1], axis=(0, 1)))
    strangers, most = jnp.sum(frequency**2), jnp.sum(frequency * (1.0 - frequency))
    return jnp.clip((shared - strangers) / jnp.where(most > 0, most, 1.0), 0.0, 1.0)
