"""Pools of experts along a known text: at each root the pool that a cycle would start with there.

Decoding counts the choices of the tokens that it drafted, which depend on the cycles before; here the target's own choices of
the text's tokens stand in their place, so that one pass serves all roots and is differentiable, as tuning needs. What a run
reports as predicted is replayed along the text instead (`jaxspec.speculate.replay`), with the very pools of decoding;
docs/decisions/0030-elastic-drafts.md has how near the two come.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int

from jaxspec.compress.expert_pool import PoolSizes, pool_sizes
from jaxspec.compress.knobs import Knobs
from jaxspec.models.allowed_experts import MoreExperts
from jaxspec.models.config import DecoderConfig
from jaxspec.speculate.hotness import RETENTION, hotness_before, hotness_rank, shared_hotness

__all__ = ["TextPools", "text_pools"]


@struct.dataclass
class TextPools:
    """Pools of a draft along texts.

    Attributes:
        rank: place of each expert by hotness, at each query (see `hotness_rank`).
        sizes: of the pools.
    """

    rank: Int[Array, "layer batch query expert"]
    sizes: PoolSizes

    def padded(self, queries: int) -> TextPools:
        """With more queries behind, of meaningless pools."""
        return dataclasses.replace(self, rank=jnp.pad(self.rank, ((0, 0), (0, 0), (0, queries), (0, 0))))

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
