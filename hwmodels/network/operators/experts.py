"""How many routed experts a step reads."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.numerics.scalars import Number, as_float


def touched_experts(num_experts: Number, experts_per_token: Number, tokens: Number) -> Float[Array, "*b"]:
    """Distinct experts of a layer that at least one of the step's tokens chooses, expected.

    Args:
        num_experts: "*b", >= 0; 0 for a network without experts.
        experts_per_token: "*b", in [0, num_experts].
        tokens: "*b", >= 0; of all sequences together.
    Returns:
        "*b", in [0, num_experts]: E (1 - (1 - k / E)^tokens).
    Departs: each token chooses k of E experts evenly and without regard to the others; real routers prefer some experts,
        and neighbouring tokens agree, so that fewer are touched. See `hwmodels.memory.distinct_items` for uneven choices.
    """
    experts, chosen, tokens = (jnp.asarray(as_float(x)) for x in (num_experts, experts_per_token, tokens))
    some = experts > 0
    # Where the formula is not used it is fed numbers at which its gradient is finite.
    experts = jnp.where(some, experts, 1.0)
    missed = jnp.clip(1.0 - jnp.where(some, chosen, 0.0) / experts, 0.0, 1.0)
    # log1p and expm1 keep a few tokens among many experts exact; a token that chooses all experts misses none.
    all_chosen = missed <= 0
    log_missed = jnp.log(jnp.where(all_chosen, 1.0, missed))
    touched = jnp.where(all_chosen, jnp.where(tokens > 0, experts, 0.0), -experts * jnp.expm1(tokens * log_missed))
    return jnp.where(some, touched, 0.0)
