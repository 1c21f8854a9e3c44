"""Attention of decoding on a GPU: one new token per sequence reads the keys and values of its context.

    t      = launch_s + depth_s · log2(1 + context / 64) + stream · (1 + ramp / (1 + stream / ramp_s))
    stream = bytes of keys and values / (memory_efficiency · bandwidth)

A context is cut into parts that run side by side and are joined in a second step (depth_s). Few bytes keep few
multiprocessors busy, so that they stream (1 + ramp) times slower than many do; in between the share falls with the bytes.

Source: form chosen on the generation-attention tables of aiconfigurator-core 0.12.0; numbers by `experiments.silicon`.
Departs: arithmetic is free, as it nearly is for fewer than about 100 query heads per key.
"""

from __future__ import annotations

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = ["GpuAttention", "decode_attention_time", "launch_time", "streaming_share"]

_DEPTH_TOKENS = 64.0


@flax.struct.dataclass
class GpuAttention:
    """A GPU's decoding attention: five fitted numbers beside the data sheet's bandwidth. Every field is a leaf, "*b"."""

    bandwidth_bytes_per_s: Leaf  # of the data sheet, > 0
    launch_s: Leaf  # >= 0
    depth_s: Leaf  # per doubling of the context, >= 0
    memory_efficiency: Leaf  # share of the bandwidth that much streaming reaches, in (0, 1]
    ramp: Leaf  # >= 0
    ramp_s: Leaf  # > 0


def decode_attention_time(
    unit: GpuAttention,
    *,
    batch: Number,
    context_tokens: Number,
    num_kv_heads: Number,
    head_dim: Number,
    kv_bits: Number = 16.0,
) -> Float[Array, "*b"]:
    """Seconds of one layer's attention.

    Args:
        unit: leaves "*b".
        batch, num_kv_heads, head_dim: "*b", > 0, real.
        context_tokens: "*b", > 0; tokens read per sequence.
        kv_bits: "*b", > 0; bits per cached element.
    Returns:
        "*b", increasing in every argument.
    Gradient: smooth.
    """
    batch, context, heads, head_dim, bits = map(as_float, (batch, context_tokens, num_kv_heads, head_dim, kv_bits))
    moved = 2.0 * batch * context * heads * head_dim * (bits / BITS_PER_BYTE)
    bandwidth = as_float(unit.bandwidth_bytes_per_s)
    return launch_time(unit, context) + moved / (streaming_share(unit, moved) * bandwidth)


def launch_time(unit: GpuAttention, context_tokens: Number) -> Float[Array, "*b"]:
    """Seconds of one layer's attention beside streaming: its launches, and joining the parts of the context.

    Args:
        unit: leaves "*b".
        context_tokens: "*b", > 0.
    """
    parts = 1.0 + jnp.asarray(as_float(context_tokens)) / _DEPTH_TOKENS
    return as_float(unit.launch_s) + as_float(unit.depth_s) * jnp.log2(parts)


def streaming_share(unit: GpuAttention, moved_bytes: Number) -> Float[Array, "*b"]:
    """Share of the bandwidth that one layer's attention reaches, the smaller the fewer bytes it reads.

    Args:
        unit: leaves "*b".
        moved_bytes: "*b", >= 0; keys and values of one layer.
    Returns:
        "*b", in (0, 1].
    """
    efficiency = as_float(unit.memory_efficiency)
    stream_s = jnp.asarray(as_float(moved_bytes)) / (efficiency * as_float(unit.bandwidth_bytes_per_s))
    return efficiency / (1.0 + as_float(unit.ramp) / (1.0 + stream_s / as_float(unit.ramp_s)))
