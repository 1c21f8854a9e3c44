"""Experts of a layer spread over devices: what the busiest device reads and multiplies.

All devices wait for the busiest one. Each of E experts has an amount x (of choices, or 1 where it is touched at all), and each
of D devices holds E / D of them, placed without knowledge of their popularity. With s^2 and t the second and third central
moments of x over experts, a device's sum has the mean m = E / D times that of x, and about the largest of D such sums is

    m x + sqrt(m s^2 E / (E - 1)) a(D) + (t / s^2) (E / (E - 2)) b(D) / 6,
    a(D) = integral of z f(z) (D F(z)^(D-1) - 1) dz,    b(D) = integral of (z^2 - 1) f(z) (D F(z)^(D-1) - 1) dz,

f and F the normal density and distribution: sums that are drawn without replacement and add up to a constant lie around their
mean as D independent ones do, whose skewness is corrected for to first order. No engine's balancing is modelled.

Source: expected maximum of D normal variables; Cornish and Fisher 1937 for the skewness; moments of samples without replacement
as in Cochran, Sampling Techniques, 1977, ch. 2.
"""

from __future__ import annotations

import math

import flax.struct
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.network.routing import (
    EVERY_EXPERT,
    UNIFORM,
    Routing,
    independent_draws,
    independent_sequences,
    pooled_choices,
    touched_share,
)
from hwmodels.numerics.scalars import Leaf, Number, as_arrays, same_rank, with_rank

__all__ = [
    "ExpertReads",
    "ExpertSharing",
    "busiest_experts",
    "busiest_load",
    "touched_experts",
]

# How many routed experts a step reads, and what a cache of experts must know of it.


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


#: A trapezoidal rule in normal deviates: nodes, and density times step. Exact to 1e-6 up to ten thousand devices.
_DEVIATES = np.arange(-6.0, 8.0 + 0.1, 0.25)
_WEIGHTS = 0.25 * np.exp(-0.5 * _DEVIATES**2) / math.sqrt(2.0 * math.pi)
_LOG_BELOW = np.log([0.5 * math.erfc(-z / math.sqrt(2.0)) for z in _DEVIATES])
#: Skewness below which the correction is not followed: few experts that miss, whose bound holds then.
_LEAST_SKEWNESS = -1.0


@flax.struct.dataclass
class ExpertSharing:
    """How a layer's experts are spread. Every field is a leaf, "*b"."""

    devices: Leaf  # that hold a part of the experts each, >= 1
    replicas: Leaf  # batches, each of a step of its own, whose tokens come to the same experts, >= 1


def busiest_experts(touched: Number, num_experts: Number, devices: Number) -> Float[Array, "*b"]:
    """Different experts that the busiest device reads.

    Args:
        touched: "*b", in [0, num_experts]; of all devices together.
        num_experts: "*b", >= 0.
        devices: "*b", >= 1.
    Returns:
        "*b", at least touched / devices, and one if any; at most what is touched and what is held; `touched` for one device.
    Gradient: kinks where one of the bounds holds, and where skewness is no longer followed.
    """
    chosen, experts, count = as_arrays(touched, num_experts, devices)
    share = chosen / jnp.where(experts > 0, experts, 1.0)
    variance = share * (1.0 - share)
    beyond = _beyond_mean(variance, variance * (1.0 - 2.0 * share), experts, count)
    return jnp.minimum(jnp.maximum(chosen / count + beyond, 1.0), jnp.minimum(chosen, experts / count))


def busiest_load(
    num_experts: Number,
    experts_per_token: Number,
    tokens: Number,
    *,
    devices: Number,
    sequences: Number = 1.0,
    routing: Routing = UNIFORM,
    pool_experts: Number = EVERY_EXPERT,
) -> Float[Array, "*b"]:
    """Choices of experts that the busiest device multiplies, over the mean of all devices.

    An expert that a token chooses with probability p has from n tokens as many choices as `independent_draws` of them, each
    standing for as many tokens as the others, have.

    Args:
        num_experts: "*b", >= 0; 0 for a network without experts.
        experts_per_token: "*b", in [0, num_experts].
        tokens: "*b", > 0; neighbouring tokens of each sequence.
        devices: "*b", >= 1; that hold num_experts / devices each.
        sequences: "*b", > 0; of all devices together.
        routing, pool_experts: as of `touched_experts`.
    Returns:
        "*b", in [1, devices], and at most num_experts / experts_per_token, as no token chooses an expert twice; 1 for one
        device, and where every token chooses every expert.
    Gradient: kinks where one of the bounds holds.
    """
    numbers = (num_experts, experts_per_token, tokens, devices, sequences, pool_experts)
    experts, chosen, tokens, count, sequences, pool = as_arrays(*numbers)
    some = (experts > 0) & (chosen > 0)
    experts, chosen = jnp.where(some, experts, 1.0), jnp.where(some, chosen, 1.0)
    choices = pooled_choices(routing, experts, chosen, pool)
    draws = independent_draws(routing, tokens=tokens, sequences=sequences)
    # Per token: moments of an expert's choices over experts and draws. One outside the pool has none.
    p, held, draws = same_rank(choices.probability, choices.held, draws[..., None])
    mean = jnp.mean(held * p, axis=-1, keepdims=True)
    own, apart = p * (1.0 - p) / draws, p - mean
    second = held * (own + apart**2) + (1.0 - held) * mean**2
    third = held * (own * ((1.0 - 2.0 * p) / draws + 3.0 * apart) + apart**3) - (1.0 - held) * mean**3
    beyond = _beyond_mean(jnp.mean(second, axis=-1), jnp.mean(third, axis=-1), experts, count)
    parts = (beyond, mean[..., 0], draws[..., 0], count, experts, chosen, some)
    beyond, mean, draws, count, experts, chosen, some = same_rank(*parts)
    # One draw at least falls on the busiest device as a whole.
    ratio = jnp.maximum(1.0 + beyond * count / (experts * mean), count / (chosen * draws))
    return jnp.where(some, jnp.minimum(ratio, jnp.minimum(count, experts / chosen)), 1.0)


def _beyond_mean(second: Array, third: Array, experts: Array, devices: Array) -> Array:
    """What the largest sum of a device exceeds the mean by, from central moments over experts; >= 0, and 0 for one device."""
    second, third, experts, devices = same_rank(second, third, experts, devices)
    count = devices[..., None]
    deviates, density, log_below = with_rank(
        tuple(jnp.asarray(values, count.dtype) for values in (_DEVIATES, _WEIGHTS, _LOG_BELOW)), count.ndim
    )
    weights = (count * jnp.exp((count - 1.0) * log_below) - 1.0) * density
    largest = jnp.sum(weights * deviates, axis=-1)
    curved = jnp.sum(weights * (deviates**2 - 1.0), axis=-1)
    held, others = experts / devices, jnp.maximum(experts - 1.0, 1.0)
    variance = held * second * experts / others
    spread = variance > 0
    # At 0 the slope of the root is infinite, and nothing is added.
    deviation = jnp.where(spread, jnp.sqrt(jnp.where(spread, variance, 1.0)), 0.0)
    skewed = jnp.where(spread, third / jnp.where(spread, second, 1.0), 0.0)
    skewed = skewed * experts / jnp.maximum(experts - 2.0, 1.0)
    return deviation * largest + jnp.maximum(skewed, _LEAST_SKEWNESS * deviation) * curved / 6.0
