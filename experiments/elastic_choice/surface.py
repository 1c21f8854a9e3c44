"""What an elastic draft's tokens bring over pool size and bit width, measured on a network and interpolated smoothly.

At every root of a text the draft goes along the text's own tokens. A token of depth d brings one token to its cycle if the
draft ranked the text's tokens before it first and this one among its first w: a chain of the likeliest tokens with w candidates
at every depth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.interpolate import pchip_interpolate

from experiments.elastic_axes.axes import WIDTHS, pool_sizes_of
from experiments.elastic_axes.measuring import Measured, Settings, hot_pools
from experiments.elastic_axes.readings import read_network
from jaxspec.compress.blending import blend
from jaxspec.compress.expert_pool import PoolSizes
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.ends import unembed
from jaxspec.models.kv_cache import KVCache
from jaxspec.settings.knobs import SLICE_BITS
from jaxspec.speculate.acceptance import TargetText, block_forward
from jaxspec.speculate.measured_ranks import rank_of
from jaxspec.speculate.text_pools import TextPools

__all__ = ["MOST_WIDTH", "Surface", "brought_tokens", "measure_surface", "surface_of"]

#: Most candidates of one depth.
MOST_WIDTH = 4


@flax.struct.dataclass
class Surface:
    """Tokens that each depth brings, with their slopes along the pool for a cubic between its knots, which keeps the order.

    Attributes:
        log_sharing: " sharing", natural logarithms of the sequences that share a pool; rising.
        share: " knot", sizes of pools between a token's own number of experts (0) and all (1); rising.
        value, slope: for bits 2, 3, ... 6.
    """

    log_sharing: Float[Array, " sharing"]
    share: Float[Array, " knot"]
    value: Float[Array, "sharing bits knot depth width"]
    slope: Float[Array, "sharing bits knot depth width"]


def surface_of(
    sharing: Sequence[int], share: Sequence[float], value: Float[np.ndarray, "sharing bits knot depth width"]
) -> Surface:
    """A surface through these values; two knots or more."""
    slope = np.asarray(pchip_interpolate(np.asarray(share), value, np.asarray(share), der=1, axis=2), np.float32)
    real = partial(jnp.asarray, dtype=jnp.float32)
    return Surface(real(np.log(sharing)), real(share), real(value), real(slope))


def brought_tokens(
    surface: Surface,
    batch: Float[Array, ""],
    share: Float[Array, ""],
    bits: Float[Array, ""],
    temperature: Float[Array, ""] | float,
) -> Float[Array, "depth width"]:
    """Tokens that each depth brings with so many candidates.

    Args:
        batch: sequences that share a pool; linear in its logarithm between those measured, constant beyond.
        share: of the pool, [0, 1].
        bits: 2 to 6; whole ones are as measured, others a blend of their neighbours (see `blend`).
    """
    mix = blend(bits, temperature, least=int(SLICE_BITS.low), most=int(SLICE_BITS.high))
    place = jnp.interp(jnp.log(batch), surface.log_sharing, jnp.arange(surface.log_sharing.size, dtype=share.dtype))
    lower = jnp.clip(jnp.floor(place), 0, max(surface.log_sharing.size - 2, 0)).astype(jnp.int32)
    upper = jnp.minimum(lower + 1, surface.log_sharing.size - 1)
    knot = jnp.clip(jnp.searchsorted(surface.share, share, side="right") - 1, 0, surface.share.size - 2)
    step = surface.share[knot + 1] - surface.share[knot]
    t = (share - surface.share[knot]) / step
    # The basis of Hermite's cubic.
    rise = t * t * (3.0 - 2.0 * t)
    first, last = t * (1.0 - t) ** 2 * step, t * t * (t - 1.0) * step

    def at(group: Array, width: Array) -> Array:
        value, slope = surface.value[group, width], surface.slope[group, width]
        along = value[knot] + rise * (value[knot + 1] - value[knot])
        return along + first * slope[knot] + last * slope[knot + 1]

    low = mix.low - int(SLICE_BITS.low)
    in_group = lambda group: at(group, low) + mix.weight * (at(group, low + 1) - at(group, low))
    part = place - lower.astype(place.dtype)
    return in_group(lower) + part * (in_group(upper) - in_group(lower))


def measure_surface(
    network: Measured, settings: Settings, sharing: Sequence[int], advance: Callable[[], None] = lambda: None
) -> Surface:
    """On a network's own continuations of held-out prompts (`experiments.elastic_axes`)."""
    sizes, experts = pool_sizes_of(network), network.experts
    value = np.zeros((len(sharing), len(WIDTHS), len(sizes), settings.draft_length, MOST_WIDTH), np.float32)
    drafts = [read_network("augmentation", bits, network.stored, network.target, network.config) for bits in WIDTHS]
    for group, count in enumerate(sharing):
        ranks = hot_pools(network, sharing=count)
        for width, draft in enumerate(drafts):
            for knot, size in enumerate(sizes):
                pools = TextPools(ranks, PoolSizes(jnp.full(len(ranks), size), None, jnp.zeros(len(ranks))))
                value[group, width, knot] = _brought(
                    draft,
                    network.text,
                    network.cache,
                    pools,
                    config=network.config,
                    block=settings.draft_length,
                    shifts=settings.shifts,
                )
                advance()
    least, most = experts.per_token, experts.num_experts
    return surface_of(sharing, [(size - least) / (most - least) for size in sizes], value)


@partial(jax.jit, static_argnames=("config", "block", "shifts"))
def _brought(
    draft: Params,
    text: TargetText,
    cache: KVCache,
    pools: TextPools,
    *,
    config: DecoderConfig,
    block: int,
    shifts: int,
) -> Float[Array, "depth width"]:
    def one(offset: Array) -> Array:
        ran = block_forward(draft, config, text, cache, offset=offset, block=block, pools=pools)
        following = jnp.take(text.tokens[:, text.first + 1 :], ran.place, axis=1)
        rank = rank_of(unembed(ran.hidden, draft, config), following)  # "batch start depth"
        first = jnp.cumprod((rank == 0).astype(jnp.float32), axis=-1)
        before = jnp.concatenate([jnp.ones_like(first[..., :1]), first[..., :-1]], axis=-1)
        among = (rank[..., None] < 1 + jnp.arange(MOST_WIDTH)).astype(jnp.float32)
        return jnp.mean(before[..., None] * among, axis=(0, 1))

    return jnp.mean(jax.lax.map(one, jnp.arange(shifts) * block // shifts), axis=0)
