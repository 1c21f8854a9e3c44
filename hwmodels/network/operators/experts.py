"""How many routed experts a step reads, and what a cache of experts must know of it."""

from __future__ import annotations

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.network.routing import (
    EVERY_EXPERT,
    UNIFORM,
    Routing,
    independent_sequences,
    pooled_choices,
    touched_share,
)
from hwmodels.numerics.axes import as_arrays, same_rank
from hwmodels.numerics.scalars import Leaf, Number


@flax.struct.dataclass
class ExpertReads:
    """How a step reads the routed experts of a layer, and what competes with them for a fast memory. Leaves "*b"."""

    num_experts: Leaf
    per_token: Leaf  # that each token chooses
    tokens: Leaf  # of each sequence
    sequences: Leaf
    pool: Leaf  # experts, the most popular ones, that the step may choose among; as a rule all
    touched: Leaf  # different ones that the step reads
    read_bits: Leaf  # of each weight of an expert that is read
    stored_bits: Leaf  # of each weight of an expert, as it is held
    copy_bits: Leaf  # of them, those of a copy that only a draft reads
    speculating: Leaf  # 1: a step of a draft-verify cycle; 0: autoregressive decoding, prefill
    drafting: Leaf  # 1: a draft step; 0: any other
    bytes_placed_before: (
        Leaf  # held beside the network, and placed before it: the target, where a draft of its own is priced
    )
    bytes_before_experts: Leaf  # held beside the network, and placed before its experts: a draft of its own
    follows_other_model: Leaf  # 1: the step follows one of that other network, if there is one; 0: it follows its like
    routing: Routing


def touched_experts(
    num_experts: Number,
    experts_per_token: Number,
    tokens: Number,
    *,
    sequences: Number = 1.0,
    routing: Routing = UNIFORM,
    pool_experts: Number = EVERY_EXPERT,
) -> Float[Array, "*b"]:
    """Distinct experts of a layer that at least one of the step's tokens chooses, expected.

    Args:
        num_experts: "*b", >= 0; 0 for a network without experts.
        experts_per_token: "*b", in [0, num_experts].
        tokens: "*b", >= 0; neighbouring tokens of each sequence.
        sequences: "*b", >= 0; independent of each other unless the routing says otherwise.
        routing: popularity "expert"; uniform and independent unless given.
        pool_experts: "*b", > 0; the most popular experts, among which alone tokens choose; all unless given.
    Returns:
        "*b", in [0, num_experts]; E (1 - (1 - k / E)^(tokens * sequences)) for uniform, independent choices among all.
    """
    numbers = (num_experts, experts_per_token, tokens, sequences, pool_experts)
    experts, chosen, tokens, sequences, pool = as_arrays(*numbers)
    some = experts > 0
    # Where the formula is not used it is fed numbers at which its gradient is finite.
    experts, chosen = jnp.where(some, experts, 1.0), jnp.where(some, chosen, 0.0)
    choices = pooled_choices(routing, experts, chosen, pool)
    touched = touched_share(
        choices.probability,
        tokens=tokens,
        sequences=independent_sequences(routing, sequences),
        correlation=routing.correlation,
    )
    held, touched = same_rank(choices.held, touched)
    return jnp.where(some, experts * jnp.mean(held * touched, axis=-1), 0.0)
