"""Which experts a token chooses, and how many different ones a step chooses in all.

A token chooses k different experts of E, expert i with probability p_i = k * popularity_i. Sequences choose independently of
each other. Within a sequence the choice of an expert is a Markov chain: with probability c a token repeats its predecessor's
choice, otherwise it chooses anew, so that an expert escapes n neighbouring tokens with probability

    (1 - p) (1 - p (1 - c)) ^ (n - 1).

c is the correlation of "the token chooses expert i" between neighbouring tokens, the same for all experts.

A routing from the choices that a router made.
"""

from __future__ import annotations

import math

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from hwmodels.memory.lru import inclusion_probability, residency, zipf_popularity
from hwmodels.numerics.fields import AMOUNT, CHANCE, NOT_NEGATIVE, check_number, number
from hwmodels.numerics.scalars import Leaf, Number, as_arrays, as_float, either, rank_of, with_rank

__all__ = [
    "EVERY_EXPERT",
    "UNIFORM",
    "PooledChoices",
    "Routing",
    "independent_draws",
    "independent_sequences",
    "measured_routing",
    "pooled_choices",
    "touched_share",
    "zipf_routing",
]

#: Pool of a step that may choose any expert.
EVERY_EXPERT = float("inf")

#: P(chosen) stays this far below 1 where a pool is chosen from anew: its logarithm is a rate.
_SURELY = 1.0 - 1e-6
#: Choices anew in a chain, fewer than which are counted by their first order.
_FEW_CHOICES = 1e-2
#: A correlation whose logarithm is finite.
_NEVER = 1e-30


@flax.struct.dataclass
class Routing:
    """Choices of a router, the mean layer's: uniform and independent unless given. Leaves are numbers, or "expert".

    A popularity of another length than the network's number of experts is taken for quantiles of its experts, so that
    networks of any size go through one `vmap`.
    """

    #: "expert": share of all choices that falls on each expert, sums to 1; None: all alike.
    popularity: Leaf = number(NOT_NEGATIVE, default=None)
    correlation: Leaf = number(CHANCE, default=0.0)  # of neighbouring tokens of one sequence, in [0, 1]
    #: Of sequences, in [0, 1]: b of them touch as many experts as b ^ independence on their own.
    independence: Leaf = number(CHANCE, default=1.0)


#: Every expert alike, every token on its own.
UNIFORM = Routing()


def zipf_routing(
    exponent: Number, *, num_experts: Number, experts_per_token: Number, entries: int, correlation: Number = 0.0
) -> Routing:
    """Routing of a token that draws its experts without replacement by a power law of their rank.

    Args:
        exponent: one number, >= 0; 0 is uniform.
        num_experts, experts_per_token: one number each, > 0.
        entries: static; quantiles of the popularity, as many as experts where their number is known.
        correlation: of neighbouring tokens of one sequence.
    Source: heavy-tailed routing as in ELMoE-3D, 3.3; draws by `hwmodels.memory.inclusion_probability`.
    """
    check_number("exponent", exponent, NOT_NEGATIVE)
    for name, value in (("num_experts", num_experts), ("experts_per_token", experts_per_token), ("entries", entries)):
        check_number(name, value, AMOUNT)
    draws = as_float(experts_per_token) * entries / as_float(num_experts)
    chosen = inclusion_probability(zipf_popularity(exponent, num_items=entries), draws)
    return Routing(popularity=chosen / jnp.sum(chosen), correlation=correlation)


def independent_sequences(routing: Routing, sequences: Number) -> Float[Array, "*b"]:
    """How many sequences that choose on their own touch as many experts as `sequences` ("*b", >= 0) of this routing.

    Gradient: a kink at one sequence, where the slope is that of fewer.
    """
    count = jnp.asarray(as_float(sequences))
    several = count > 1.0
    return jnp.where(several, jnp.where(several, count, 2.0) ** as_float(routing.independence), count)


def independent_draws(routing: Routing, *, tokens: Number, sequences: Number = 1.0) -> Float[Array, "*b"]:
    """How many tokens that choose on their own have loads of experts as uneven as a step's, relative to their mean.

    Choices of n neighbouring tokens, of which one repeats its predecessor's with probability c, add up with the variance of
    one token's times

        V = n (1 + c) / (1 - c) - 2 c (1 - c^n) / (1 - c)^2,

    and so n^2 / V of them stand for as many tokens each.

    Args:
        tokens, sequences: "*b", > 0, as of `touched_share`.
    Returns:
        "*b"; tokens times sequences where all are independent, never more.
    Source: variance of a sum over a chain whose autocorrelation is c^j.
    """
    tokens, sequences, correlation = as_arrays(tokens, sequences, routing.correlation)
    anew = 1.0 - correlation
    # Close to 1 the two terms cancel; what remains is n^2 (1 - (n - 1 / n) (1 - c) / 3).
    apart = anew * tokens > _FEW_CHOICES
    divisor = jnp.where(apart, anew, 1.0)
    repeated = jnp.expm1(tokens * jnp.log(jnp.maximum(correlation, _NEVER)))
    variance = tokens * (1.0 + correlation) / divisor + 2.0 * correlation * repeated / divisor**2
    few = tokens**2 * (1.0 - (tokens - 1.0 / tokens) * anew / 3.0)
    chain = tokens**2 / jnp.where(apart, variance, jnp.where(tokens < 1.0, 1.0, few))
    return jnp.where(tokens < 1.0, tokens, chain) * independent_sequences(routing, sequences)


@flax.struct.dataclass
class PooledChoices:
    """What a token chooses out of a pool, by expert, the most popular first; one entry where all are alike."""

    probability: Float[Array, "... expert"]  # P(chosen | in the pool), in [0, 1]
    held: Float[Array, "... expert"]  # share of the expert that the pool holds: 1, a fraction for one of them, then 0


def pooled_choices(
    routing: Routing, num_experts: Number, experts_per_token: Number, pool_experts: Number = EVERY_EXPERT
) -> PooledChoices:
    """How probable each expert is when tokens choose among the most popular ones alone.

    A token takes the next best expert of the pool in place of one outside. Its order of experts is taken to be drawn without
    replacement, see `hwmodels.memory.inclusion_probability`.

    Args:
        routing: popularity "expert".
        num_experts: "*b", > 0.
        experts_per_token: "*b", in [0, num_experts].
        pool_experts: "*b", > 0; all unless given. A fraction is a mean over layers, some of which hold one expert more.
    Returns:
        leaves "*b expert". The mean of probability times held over the entries, times the number of experts, is
        `experts_per_token`, or the pool if it is smaller, unless a token would have to choose an expert twice.
    Gradient: by the pool, with kinks where it is a whole number of experts.
    """
    experts, chosen, pool = as_arrays(num_experts, experts_per_token, pool_experts)
    pool = jnp.where(pool < experts, pool, experts)
    if routing.popularity is None:
        ratio = chosen / pool
        return PooledChoices(jnp.where(ratio < 1.0, ratio, 1.0)[..., None], (pool / experts)[..., None])
    shares = jnp.sort(jnp.asarray(as_float(routing.popularity)), axis=-1, descending=True)
    shares = shares / jnp.sum(shares, axis=-1, keepdims=True)
    place = jnp.arange(shares.shape[-1], dtype=shares.dtype)
    shares, place = with_rank((shares, place), 1 + rank_of(experts, chosen, pool))
    entries_per_expert = shares.shape[-1] / experts
    anywhere = shares * (chosen * entries_per_expert)[..., None]
    anywhere = jnp.where(anywhere < 1.0, anywhere, 1.0)
    left = (pool * entries_per_expert)[..., None] - place
    held = jnp.where(left >= 1.0, 1.0, jnp.where(left > 0.0, left, 0.0))
    draws = jnp.where(chosen < pool, chosen, pool) * entries_per_expert
    # The rates at which an order sample would choose as the router does, and what it chooses among fewer.
    rates = -jnp.log1p(-jnp.minimum(anywhere, _SURELY))
    # Outside the pool, where sizes are 0, a rate must not be the one that lasts longest.
    rates = jnp.where(held > 0.0, rates, -math.log1p(-_SURELY))
    inside = residency(rates, draws, item_sizes=held)
    return PooledChoices(jnp.where((pool < experts)[..., None], inside, anywhere), held)


def touched_share(
    chosen: Float[Array, "... expert"], *, tokens: Number, sequences: Number = 1.0, correlation: Number = 0.0
) -> Float[Array, "... expert"]:
    """P(at least one of a step's tokens chooses the expert).

    Args:
        chosen: "*b expert", in [0, 1]; P(a token chooses it).
        tokens: "*b", >= 0; neighbouring tokens of each sequence. Fewer than one are one that is there at times.
        sequences: "*b", >= 0; independent of each other.
        correlation: "*b", in [0, 1].
    Returns:
        "*b expert", in [0, 1].
    Gradient: right for every input; a kink at one token, where the slope is that of more tokens.
    Source: ELMoE-3D, 7.3 A and Fig. 16 (b): tokens of one request touch fewer experts than as many requests.
    Departs: the paper prints no formula; the chain that repeats or chooses anew is the one with a single number.
    """
    numbers = (jnp.asarray(as_float(x))[..., None] for x in (tokens, sequences, correlation))
    tokens, sequences, correlation, chosen = as_arrays(*numbers, chosen)
    first = jnp.where(tokens < 1.0, tokens, 1.0)
    # Where the formula is not used it is fed numbers at which its gradient is finite; log1p and expm1 keep a few tokens among
    # many experts exact.
    sure = chosen >= 1.0
    some = jnp.where(sure, 0.5, chosen)
    escaped = first * jnp.log1p(-some) + (tokens - first) * jnp.log1p(-some * (1.0 - correlation))
    at_all = either(tokens * sequences > 0, 1.0, 0.0)
    return jnp.where(sure, at_all, -jnp.expm1(sequences * escaped))


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
