"""How many experts a draft chooses among: the knob, the whole number that it means, and a blend of two between them."""

from __future__ import annotations

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int

from jaxspec.compress.blending import blend
from jaxspec.compress.knobs import Knobs
from jaxspec.compress.schemes import Scheme
from jaxspec.models.config import DecoderConfig
from jaxspec.settings.knobs import EXPERT_POOL

__all__ = ["PoolSizes", "has_pool", "pool_share", "pool_sizes", "without_experts"]


@struct.dataclass
class PoolSizes:
    """Sizes of the pools of all layers that have a router.

    Attributes:
        low: experts of the smaller pool.
        weight: of what is computed with one expert more; None: a hard pool, of `low` experts.
        share: where the (mean) size lies between a token's own number of experts (0) and all (1).
    """

    low: Int[Array, " layer"]
    weight: Float[Array, " layer"] | None
    share: Float[Array, " layer"]


def has_pool(knobs: Knobs, config: DecoderConfig) -> bool:
    """Whether a draft of a network chooses among a pool of its experts (static)."""
    return config.experts is not None and EXPERT_POOL.name in knobs.values


def without_experts(name: str, scheme: Scheme, config: DecoderConfig) -> str:
    """What a user should know of a scheme's pools where a network, called by a name, has no experts; empty otherwise."""
    pools = [spec.name for spec in scheme.knob_specs if spec.per == "experts"]
    if not pools or config.experts is not None:
        return ""
    return f"{name} has no experts; {', '.join(pools)} changes nothing"


def pool_sizes(knobs: Knobs, config: DecoderConfig, temperature: Float[Array, ""] | float | None) -> PoolSizes | None:
    """Sizes that knobs mean: per_token + share · (experts − per_token), rounded to a whole number of experts.

    Args:
        temperature: of the blend of the two whole numbers around it, which tends to the rounded one as it falls; None: round.
    Returns:
        None where nothing restricts the choice: a network without experts, or a scheme without the knob.
    """
    if not has_pool(knobs, config):
        return None
    assert config.experts is not None
    assert config.router is not None
    least, most = config.experts.per_token, config.experts.num_experts
    share = knobs.values[EXPERT_POOL.name][jnp.asarray(list(config.router.layers()))]
    if least == most:
        return PoolSizes(jnp.full(share.shape, most, jnp.int32), None, jnp.ones_like(share))
    size = least + share * (most - least)
    if temperature is None:
        whole = jnp.round(size)
        return PoolSizes(whole.astype(jnp.int32), None, (whole - least) / (most - least))
    mix = blend(size, temperature, least=least, most=most)
    return PoolSizes(mix.low, mix.weight, (mix.mean - least) / (most - least))


def pool_share(knobs: Knobs | None, config: DecoderConfig) -> Float[Array, " layer"] | None:
    """Share of the hard pools of all layers that have a router; None where nothing restricts the choice, and without knobs."""
    sizes = None if knobs is None else pool_sizes(knobs, config, None)
    return None if sizes is None else sizes.share
