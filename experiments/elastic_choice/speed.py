"""How fast decoding is with a choice of pool, bits, depth and width: one differentiable function, soft and hard."""

from __future__ import annotations

import dataclasses

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from experiments.elastic_choice.surface import MOST_WIDTH, Surface, brought_tokens
from hwmodels import DraftCost, Plan, price_cycle
from jaxspec.compress.blending import blend
from jaxspec.compress.footprint import uniform
from jaxspec.formats.bit_slices import WEIGHT_BITS
from jaxspec.settings.knobs import SLICE_BITS
from jaxspec.tuning.objective import Pricing, with_pool

__all__ = ["HARD", "Choice", "caterpillar", "log_speedup"]

#: Temperature at which blends are those of whole numbers.
HARD = 1e-3

#: Bits per weight of a 16-bit scale for each 32.
_SCALE_BITS = 16 / 32


@flax.struct.dataclass
class Choice:
    """What is chosen; real numbers on the way.

    Attributes:
        share: of the experts between a token's own number (0) and all (1) that are in the pool.
        bits: of a weight that the draft reads, 2 to 6.
        depth: tokens drafted one after the other, >= 1.
        width: candidates of each depth, 1 to 4.
    """

    share: Float[Array, ""]
    bits: Float[Array, ""]
    depth: Float[Array, ""]
    width: Float[Array, ""]


def caterpillar(depth: Float[Array, ""], width: Float[Array, ""]) -> Plan:
    """A chain of the likeliest tokens, each with `width` - 1 siblings that nothing follows; linear between whole numbers."""
    nodes = depth * width
    return Plan(
        draft_tokens=jnp.ones(1),
        draft_visible=jnp.ones(1),
        draft_repeats=depth[None],
        verify_tokens=1.0 + nodes,
        verify_visible=(1.0 + nodes * (depth + 3.0) / 2.0) / (1.0 + nodes),
    )


def log_speedup(
    choice: Choice,
    batch: Float[Array, ""],
    surface: Surface,
    pricing: Pricing,
    temperature: Float[Array, ""] | float = HARD,
    smoothing: Float[Array, ""] | float = 0.0,
) -> Float[Array, ""]:
    """Logarithm of the speedup over autoregressive decoding of the stored network.

    Args:
        batch: sequences decoded together, which share their pools; in place of the workload's.
        temperature: of the blends of bits. smoothing: of the roofline.
    """
    brought = brought_tokens(surface, batch, choice.share, choice.bits, temperature)
    widest = jnp.clip(jnp.floor(choice.width), 1, MOST_WIDTH - 1).astype(jnp.int32)
    part = choice.width - widest.astype(choice.width.dtype)
    of_width = brought[:, widest - 1] + part * (brought[:, widest] - brought[:, widest - 1])
    within = jnp.clip(choice.depth - jnp.arange(of_width.size, dtype=choice.depth.dtype), 0.0, 1.0)
    mix = blend(choice.bits, temperature, least=int(SLICE_BITS.low), most=int(SLICE_BITS.high))
    cycle = price_cycle(
        pricing.device,
        pricing.architecture,
        footprint=uniform(mix.mean + _SCALE_BITS, WEIGHT_BITS + _SCALE_BITS, 16.0, 16.0),
        draft_cost=with_pool(DraftCost(), pricing.architecture, choice.share),
        workload=dataclasses.replace(pricing.workload, batch=batch),
        plan=caterpillar(choice.depth, choice.width),
        routing=pricing.routing,
        temperature=smoothing,
    )
    plain_s = cycle.baselines.stored.cost.total_s
    return jnp.log1p(jnp.sum(within * of_width)) + jnp.log(plain_s) - jnp.log(cycle.total_s)
