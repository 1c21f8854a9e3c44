"""Hotness of experts: how often the router chose each, recent tokens first; and which of them make a pool.

What counts is the original choice, among all experts, of tokens that a draft may have computed with others.

Source: ELMoE-3D (arXiv:2604.14626), 4.2: choices as one-hot vectors, accumulated over the preceding draft steps.
Departs: what is older than a draft phase is kept, with a weight that falls by a constant factor per committed token, so that
    the few tokens of a short draft at a small batch do not decide alone.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int

from jaxspec.compress.expert_pool import PoolSizes, pool_sizes
from jaxspec.compress.knobs import Knobs
from jaxspec.models.config import DecoderConfig
from jaxspec.models.router import MoreExperts

__all__ = [
    "RETENTION",
    "TextPools",
    "count_choices",
    "faded",
    "hotness_before",
    "hotness_rank",
    "recency",
    "shared_hotness",
    "text_pools",
]

#: Factor by which hotness falls per committed token.
RETENTION = 0.95


def count_choices(
    original: Int[Array, "batch token layer chosen"], weight: Float[Array, "batch token"], num_experts: int
) -> Float[Array, "layer batch expert"]:
    """Weighted number of tokens that choose each expert.

    Args:
        original: experts by number.
        weight: of each token; 0 leaves it out.
        num_experts: static.
    """

    def of_one(original: Array, weight: Array) -> Array:  # of a layer of a sequence
        each = jnp.broadcast_to(weight[:, None], original.shape).reshape(-1)
        return jnp.zeros(num_experts, weight.dtype).at[original.reshape(-1)].add(each)

    over_layers = jax.vmap(of_one, in_axes=(1, None))
    return jax.vmap(over_layers, out_axes=1)(original, weight)


def recency(valid: Int[Array, " batch"], places: int, retention: float) -> Float[Array, "batch place"]:
    """Weights of the places of a window whose last valid one counts 1; 0 behind it."""
    age = valid[:, None] - 1 - jnp.arange(places)[None]
    return jnp.where(age >= 0, faded(age, retention), 0.0)


def faded(tokens: Int[Array, "*b"], retention: float) -> Float[Array, "*b"]:
    """Weight of a choice after a number of committed tokens."""
    return jnp.power(jnp.asarray(retention, jnp.float32), jnp.maximum(tokens, 0).astype(jnp.float32))


def hotness_before(
    original: Int[Array, "batch token layer chosen"],
    num_experts: int,
    retention: float,
    before: Int[Array, " batch"] | None = None,
) -> Float[Array, "layer batch token expert"]:
    """Hotness at each token of a text, of all tokens that precede it.

    Args:
        before: columns of padding before each text; None: there are none.
    """
    batch, tokens, layers, _ = original.shape
    first = jnp.zeros(batch, jnp.int32) if before is None else before.astype(jnp.int32)
    text = jnp.arange(tokens, dtype=jnp.int32)[None] >= first[:, None]

    def step(hotness: Array, token: tuple[Array, Array]) -> tuple[Array, Array]:
        chosen, counts = token
        own = count_choices(chosen[:, None], counts[:, None].astype(hotness.dtype), num_experts)
        return retention * hotness + own, hotness

    start = jnp.zeros((layers, batch, num_experts), jnp.float32)
    _, hotness = jax.lax.scan(step, start, (jnp.moveaxis(original, 1, 0), text.T))
    return jnp.moveaxis(hotness, 0, 2)


def shared_hotness(
    hotness: Float[Array, "layer batch *b expert"], sharing: int
) -> Float[Array, "layer batch *b expert"]:
    """Hotness of sequences that share a pool: summed over groups of consecutive ones, the last group may be smaller.

    Args:
        sharing: static; sequences of a group.
    """
    if sharing == 1:
        return hotness
    group = jnp.arange(hotness.shape[1]) // sharing
    together = jax.vmap(lambda one: jax.ops.segment_sum(one, group, num_segments=-(-len(one) // sharing)))(hotness)
    return together[:, group]


def hotness_rank(hotness: Float[Array, "*b expert"]) -> Int[Array, "*b expert"]:
    """Place of each expert by hotness, 0 the hottest; of equal ones the lower number comes first.

    A pool of n experts is those of a place below n.
    """
    order = jnp.argsort(hotness, axis=-1, descending=True, stable=True)
    return jnp.argsort(order, axis=-1).astype(jnp.int32)


# Pools of experts along a known text: at each root the pool that a cycle would start with there.


@struct.dataclass
class TextPools:
    """Pools of a draft along texts.

    Attributes:
        rank: place of each expert by hotness, at each query (see `hotness_rank`).
        sizes: of the pools.
    """

    rank: Int[Array, "layer batch query expert"]
    sizes: PoolSizes

    def of_roots(self, root: Int[Array, " query"]) -> dict[str, Any]:
        """Fields of a step: each query chooses from the pool of its root."""
        rank = jnp.take(self.rank, root, axis=2)
        below = lambda size: rank < size[:, None, None, None]
        low, weight = self.sizes.low, self.sizes.weight
        more = None if weight is None else MoreExperts(below(low + 1), weight)
        return {"allowed_experts": below(low), "more_experts": more}


def text_pools(
    original: Int[Array, "batch token layer chosen"] | None,
    config: DecoderConfig,
    knobs: Knobs,
    *,
    first: int,
    temperature: Float[Array, ""] | float | None = None,
    before: Int[Array, " batch"] | None = None,
    sharing: int = 1,
    retention: float = RETENTION,
) -> TextPools | None:
    """Pools from the target's choices of all tokens that precede a root.

    Args:
        original: the target's, at every token of the texts; None of a dense network.
        first: static; first query.
        temperature: as for `pool_sizes`.
        before: columns of padding before each text; None: there are none.
        sharing: static; consecutive texts that share a pool, aligned by their columns.
    Returns:
        None where nothing restricts the choice.
    """
    sizes = pool_sizes(knobs, config, temperature)
    if sizes is None:
        return None
    assert original is not None
    assert config.experts is not None
    hotness = hotness_before(original, config.experts.num_experts, retention, before)[:, :, first:]
    return TextPools(hotness_rank(shared_hotness(hotness, sharing)), sizes)
