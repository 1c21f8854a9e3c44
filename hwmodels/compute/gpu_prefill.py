"""Attention of many new tokens on a GPU: prefill, verification, and what lies between.

    t          = decoding's launch + (stream^4 + arithmetic^4 + chain^4)^(1/4) + many · (extra_s + pass)
    arithmetic = pairs · (2 d / compute_efficiency + exponential_flops) / peak
    pairs      = rows · (visible + (tile_tokens - 1) / 2 · x / (x + 1))
    chain      = many · chain_s · last visible                                one tile of rows sees all keys one after the other
    pass       = bytes of queries, keys, values and outputs / (memory_efficiency · bandwidth)
    many       = x^2 / (x^2 + 64^2),   x = new tokens per sequence - 1

One new token is decoding (`gpu_attention`), whose launch and stream these kernels have too: d elements are multiplied per row
and visible token, scores and values together, and each of these pairs takes an exponential. Tiles of a causal mask are
multiplied whole. A single tile of rows cannot be spread over multiprocessors (chain_s).

Source: form chosen on the context-attention tables of aiconfigurator-core 0.12.0; numbers by `experiments.silicon`.
Departs: few new tokens on a long context (verification) are not in the tables; they stream as decoding does.
"""

from __future__ import annotations

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.compute.gpu_attention import GpuAttention, launch_time, streaming_time
from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.numerics.smoothing import smooth_largest

__all__ = ["GpuPrefill", "PrefillParts", "prefill_attention_time", "prefill_parts"]

_MANY_TOKENS = 64.0
_ELEMENT_BYTES = 2.0
#: Of the smooth maximum that joins arithmetic and chain: the fourth powers above.
_JOINING_TEMPERATURE = 0.25


@flax.struct.dataclass
class GpuPrefill:
    """Six fitted numbers. Every field is a leaf, "*b"."""

    extra_s: Leaf  # of launches beyond those of decoding, >= 0
    compute_efficiency: Leaf  # share of the peak in products, > 0
    exponential_flops: Leaf  # that take as long as the exponential of one score, >= 0
    tile_tokens: Leaf  # rows of a tile, >= 1
    chain_s: Leaf  # per visible token, >= 0
    memory_efficiency: Leaf  # share of the bandwidth, > 0


@flax.struct.dataclass
class PrefillParts:
    """Seconds of one layer, "*b"."""

    compute_s: Float[Array, "*b"]  # overlaps with streaming
    launch_s: Float[Array, "*b"]  # overlaps with nothing


def prefill_parts(
    unit: GpuPrefill,
    *,
    rows: Number,
    depth: Number,
    tokens: Number,
    visible_tokens: Number,
    moved_bytes: Number,
    peak_flops_per_s: Number,
    bandwidth_bytes_per_s: Number,
) -> PrefillParts:
    """What many new tokens add to the launch and stream of decoding.

    Args:
        unit: leaves "*b".
        rows: "*b", >= 0; new tokens of all sequences times query heads.
        depth: "*b", > 0; elements multiplied per row and visible token.
        tokens: "*b", >= 1; new tokens per sequence.
        visible_tokens: "*b", > 0; that a new token sees, on average.
        moved_bytes: "*b", >= 0; of queries, outputs, keys and values.
        peak_flops_per_s, bandwidth_bytes_per_s: "*b", > 0; of the data sheet.
    Returns:
        increasing in every amount of work; nothing but arithmetic for one token.
    Gradient: smooth.
    """
    rows, depth, tokens, visible, moved = (
        jnp.asarray(as_float(value)) for value in (rows, depth, tokens, visible_tokens, moved_bytes)
    )
    more = tokens - 1.0
    many = more * more / (more * more + _MANY_TOKENS**2)
    pairs = rows * (visible + 0.5 * (as_float(unit.tile_tokens) - 1.0) * more / tokens)
    flops = pairs * (2.0 * depth / as_float(unit.compute_efficiency) + as_float(unit.exponential_flops))
    arithmetic_s = flops / as_float(peak_flops_per_s)
    chain_s = many * as_float(unit.chain_s) * (visible + 0.5 * more)
    pass_s = moved / (as_float(unit.memory_efficiency) * as_float(bandwidth_bytes_per_s))
    # Of shares of the longer one: single precision does not hold fourth powers of the seconds that long prompts take.
    joined = smooth_largest(arithmetic_s, chain_s, temperature=_JOINING_TEMPERATURE)
    return PrefillParts(joined, many * (as_float(unit.extra_s) + pass_s))


def prefill_attention_time(
    unit: GpuPrefill,
    decoding: GpuAttention,
    *,
    batch: Number,
    tokens: Number,
    num_heads: Number,
    num_kv_heads: Number,
    head_dim: Number,
    peak_flops_per_s: Number,
) -> Float[Array, "*b"]:
    """Seconds of one layer's attention over prompts from an empty cache: what the coefficients were fitted to.

    Args:
        unit, decoding: leaves "*b".
        batch, tokens, num_heads, num_kv_heads, head_dim: "*b", > 0, real; tokens per prompt.
        peak_flops_per_s: "*b", > 0.
    """
    batch, tokens, heads, kv_heads, head_dim = map(as_float, (batch, tokens, num_heads, num_kv_heads, head_dim))
    visible = 0.5 * (tokens + 1.0)
    moved = 2.0 * _ELEMENT_BYTES * batch * tokens * (heads + kv_heads) * head_dim
    parts = prefill_parts(
        unit,
        rows=batch * tokens * heads,
        depth=2.0 * head_dim,
        tokens=tokens,
        visible_tokens=visible,
        moved_bytes=moved,
        peak_flops_per_s=peak_flops_per_s,
        bandwidth_bytes_per_s=decoding.bandwidth_bytes_per_s,
    )
    busy = (parts.compute_s**4 + streaming_time(decoding, moved) ** 4) ** 0.25
    return launch_time(decoding, visible, batch * kv_heads) + busy + parts.launch_s
