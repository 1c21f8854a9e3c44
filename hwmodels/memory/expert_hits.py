"""How many of the experts that a step touches are found in a cache that holds some of them.

A rule is a small object with one function, so that a placement works with any: nothing known (`EvenHits`), a power law of the
cached share whose locality fades with the batch (`PowerLawHits`), an LRU cache by its characteristic time
(`CharacteristicTime`). A draft that chooses among a pool of the most popular experts finds all of them as soon as the cache
holds the pool.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.memory.lru import residency
from hwmodels.network.operators.expert_sharing import ExpertReads
from hwmodels.network.routing import independent_sequences, pooled_choices, touched_share
from hwmodels.numerics.fields import NOT_NEGATIVE, SHARE, number, tag
from hwmodels.numerics.scalars import Leaf, Number, as_float, either, same_rank

__all__ = ["HIT_RULES", "CharacteristicTime", "EvenHits", "HitRule", "PowerLawHits", "cached_share"]


class HitRule(Protocol):
    """What decides on hits: a tree of leaves with these members."""

    title: ClassVar[str]  # in a sentence

    def hit_share(self, reads: ExpertReads, cached_experts: Number) -> Float[Array, "*b"]:
        """Share of the touched experts that are found.

        Args:
            reads: leaves "*b"; how the step reads experts.
            cached_experts: "*b", >= 0; experts of a layer that the cache holds.
        Returns:
            "*b", in [0, 1], increasing in `cached_experts`; 1 where the cache holds all that the step may choose.
        """
        ...


def cached_share(reads: ExpertReads, cached_experts: Number) -> Float[Array, "*b"]:
    """Cached experts over those that the step may choose among, "*b", in [0, 1]; 1 for a network without experts."""
    pool = as_float(reads.pool)
    share = as_float(cached_experts) / either(pool > 0, pool, 1.0)
    return jnp.asarray(either(pool > 0, either(share < 1.0, share, 1.0), 1.0))


@flax.struct.dataclass
class EvenHits:
    """Every expert is as likely to be cached as to be touched: the cached share."""

    title: ClassVar[str] = "hits in proportion to what is cached"
    kind: str = tag("even")

    def hit_share(self, reads: ExpertReads, cached_experts: Number) -> Float[Array, "*b"]:
        """See `HitRule`."""
        return cached_share(reads, cached_experts)


@flax.struct.dataclass
class PowerLawHits:
    """Hits f^beta at a cached share f, with a locality that fades as sequences are batched: beta rises from its value for one
    sequence towards 1, at which the cache hits no more often than by chance.

        beta(batch) = 1 - (1 - exponent) * batch ^ -fading

    Source: ELMoE-3D, 7 (power-law LRU with batch-dependent locality, calibrated per model), Fig. 16 (a); no formula is printed.
    """

    title: ClassVar[str] = "hits by a power law of what is cached"
    kind: str = tag("power_law")

    exponent: Leaf = number(SHARE)  # beta of a single sequence, in (0, 1]
    fading: Leaf = number(NOT_NEGATIVE, default=0.0)  # >= 0; 0: the same for any batch

    def hit_share(self, reads: ExpertReads, cached_experts: Number) -> Float[Array, "*b"]:
        """See `HitRule`. Gradient: infinite where nothing is cached, as the power law has it."""
        batch = jnp.asarray(as_float(reads.sequences))
        beta = 1.0 - (1.0 - as_float(self.exponent)) * jnp.where(batch > 1.0, batch, 1.0) ** -as_float(self.fading)
        share = cached_share(reads, cached_experts)
        some = share > 0
        return jnp.where(some, jnp.where(some, share, 1.0) ** beta, 0.0)


@flax.struct.dataclass
class CharacteristicTime:
    """An LRU cache whose requests follow the popularity of the routing, without memory: `hwmodels.memory.residency`.

    Departs: what neighbouring tokens have in common counts for how many experts are touched, not for what is still cached.
    """

    title: ClassVar[str] = "hits of an LRU cache by its characteristic time"
    kind: str = tag("characteristic_time")

    def hit_share(self, reads: ExpertReads, cached_experts: Number) -> Float[Array, "*b"]:
        """See `HitRule`."""
        if reads.routing.popularity is None:
            return cached_share(reads, cached_experts)
        experts = jnp.asarray(as_float(reads.num_experts))
        some = experts > 0
        experts = jnp.where(some, experts, 1.0)
        choices = pooled_choices(
            reads.routing, experts, jnp.where(some, reads.per_token, 1.0), jnp.where(some, reads.pool, 1.0)
        )
        rates = -jnp.log1p(-jnp.where(choices.probability < _SURELY, choices.probability, _SURELY))
        entries = choices.probability.shape[-1] / experts
        resident = residency(rates, jnp.asarray(as_float(cached_experts)) * entries, item_sizes=choices.held)
        touched = touched_share(
            choices.probability,
            tokens=reads.tokens,
            sequences=independent_sequences(reads.routing, reads.sequences),
            correlation=reads.routing.correlation,
        )
        held, touched, resident = same_rank(choices.held, touched, resident)
        touched = held * touched
        all_touched = jnp.sum(touched, axis=-1)
        hits = jnp.sum(touched * resident, axis=-1) / jnp.where(all_touched > 0, all_touched, 1.0)
        return jnp.where(some, jnp.where(hits < 1.0, hits, 1.0), 1.0)


#: P(chosen) of experts that every token chooses: their rate of requests is finite.
_SURELY = 1.0 - 1e-6

#: Kind in a device's file -> class.
HIT_RULES: dict[str, type] = {"even": EvenHits, "power_law": PowerLawHits, "characteristic_time": CharacteristicTime}
