"""Attention of decoding on a GPU: one new token per sequence reads the keys and values of its context.

    t      = launch_s + depth_s · log2(1 + context / 64) + pair_s · pairs + (memory^4 + blocks^4)^(1/4)
    memory = stream · (1 + ramp / (1 + stream / ramp_s))
    stream = bytes / (memory_efficiency · bandwidth) · (1 - hit · (1 - 1 / cache_speed))
    hit    = 1 / (1 + (bytes / cache_bytes)^cache_sharpness)
    blocks = block_byte_s · bytes / pairs · rounds
    rounds = x + (ceil(x) - x) / (1 + (split_pairs / pairs)^8),   x = pairs / multiprocessors

A context is cut into parts that run side by side and are joined in a second step (depth_s). Each pair of a sequence and a key
head takes a time of its own however short its context (pair_s). Few bytes keep few
multiprocessors busy, so that they stream (1 + ramp) times slower than many do; in between the share falls with the bytes.
Keys and values that fit into the second-level cache are read from it, cache_speed times faster.

A multiprocessor reads its part of the context no faster than one block can (block_byte_s). Kernels cut contexts only while
there are few pairs (split_pairs). Beyond, a pair is one block: with fewer pairs than multiprocessors some of these idle, with
a few more most of them idle while the last pairs are read.

Source: form chosen on the generation-attention tables of aiconfigurator-core 0.12.0; numbers by `experiments.silicon`.
Departs: arithmetic is free here, as it nearly is for fewer than about 100 query heads per key; `gpu_prefill` adds it.
The tables time one layer again and again, whose context may lie in the cache. Within a network other layers' weights have
driven it out: `attention_parts`, which steps are priced by, streams no faster than the memory can.
"""

from __future__ import annotations

from collections.abc import Sequence

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.compute.gpu_experts import format_shares, width_in_format
from hwmodels.numerics.folds import smooth_ceil_div
from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.numerics.smoothing import smooth_largest
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = [
    "GpuAttention",
    "GpuPrefill",
    "PrefillParts",
    "attention_parts",
    "block_time",
    "decode_attention_time",
    "launch_time",
    "prefill_attention_time",
    "prefill_parts",
    "streaming_time",
    "unsplit_time",
]

_DEPTH_TOKENS = 64.0
#: Of the smooth maximum that joins memory and blocks.
_OVERLAP_TEMPERATURE = 0.25
#: Of counts of rounds: 128 pairs on 108 multiprocessors are 1.87 of them, 108 pairs are one.
_ROUND_TEMPERATURE = 0.05
#: How sharply kernels stop cutting contexts: from a tenth to nine tenths within a factor of 1.7 of pairs.
_SPLIT_POWER = 8
_ALL_CUT = 1e3


@flax.struct.dataclass
class GpuAttention:
    """A GPU's decoding attention: nine or eleven fitted numbers beside the data sheet. Every field is a leaf, "*b"."""

    bandwidth_bytes_per_s: Leaf  # of the data sheet, > 0
    launch_s: Leaf  # >= 0
    depth_s: Leaf  # per doubling of the context, >= 0
    memory_efficiency: Leaf  # share of the bandwidth that much streaming reaches, in (0, 1]
    ramp: Leaf  # >= 0
    ramp_s: Leaf  # > 0
    cache_bytes: Leaf  # of which half comes from the cache, > 0
    cache_speed: Leaf  # over the memory's, >= 1
    cache_sharpness: Leaf  # > 0
    pair_s: Leaf = 0.0  # per pair of a sequence and a key head, >= 0; fits without it have none
    block_byte_s: Leaf = 0.0  # per byte that one multiprocessor reads, >= 0
    split_pairs: Leaf = 0.0  # from which on half of the contexts are not cut, >= 0
    multiprocessors: Leaf = 1.0  # of the data sheet, > 0


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
    Gradient: continuous.
    """
    batch, context, heads, head_dim, bits = map(as_float, (batch, context_tokens, num_kv_heads, head_dim, kv_bits))
    moved, pairs = 2.0 * batch * context * heads * head_dim * (bits / BITS_PER_BYTE), batch * heads
    return launch_time(unit, context, pairs) + _joined(streaming_time(unit, moved), block_time(unit, moved, pairs))


def launch_time(unit: GpuAttention, context_tokens: Number, pairs: Number) -> Float[Array, "*b"]:
    """Seconds of one layer's attention beside streaming: its launches, and joining the parts of the context.

    Args:
        unit: leaves "*b".
        context_tokens: "*b", > 0.
        pairs: "*b", > 0; sequences times key heads.
    """
    parts = 1.0 + jnp.asarray(as_float(context_tokens)) / _DEPTH_TOKENS
    each = as_float(unit.pair_s) * jnp.asarray(as_float(pairs))
    return as_float(unit.launch_s) + as_float(unit.depth_s) * jnp.log2(parts) + each


def streaming_time(unit: GpuAttention, moved_bytes: Number) -> Float[Array, "*b"]:
    """Seconds of streaming one layer's keys and values, increasing in them.

    Args:
        unit: leaves "*b".
        moved_bytes: "*b", >= 0; keys and values of one layer.
    """
    moved = jnp.asarray(as_float(moved_bytes))
    stream_s = moved / (as_float(unit.memory_efficiency) * as_float(unit.bandwidth_bytes_per_s))
    # The logarithm of nothing has no slope.
    size = jnp.log(jnp.maximum(moved, 1.0) / as_float(unit.cache_bytes))
    hit = jax.nn.sigmoid(-as_float(unit.cache_sharpness) * size)
    stream_s = stream_s * (1.0 - hit * (1.0 - 1.0 / as_float(unit.cache_speed)))
    return stream_s * (1.0 + as_float(unit.ramp) / (1.0 + stream_s / as_float(unit.ramp_s)))


def block_time(unit: GpuAttention, cached_bytes: Number, pairs: Number) -> Float[Array, "*b"]:
    """Seconds in which multiprocessors read one layer's keys and values if the memory takes no time.

    Args:
        unit: leaves "*b".
        cached_bytes: "*b", >= 0; keys and values of all pairs, of one layer.
        pairs: "*b", >= 0; sequences times key heads. Of none nothing is read.
    Returns:
        increasing in both, at a given size of each pair's context.
    Gradient: continuous.
    """
    cached, pairs, processors = (jnp.asarray(as_float(v)) for v in (cached_bytes, pairs, unit.multiprocessors))
    pairs = jnp.where(pairs > 0, pairs, 1.0)
    whole = smooth_ceil_div(pairs, processors, _ROUND_TEMPERATURE)
    # Beyond, all contexts are cut to the last digit, and single precision would not hold the power.
    cut = jnp.minimum(as_float(unit.split_pairs) / pairs, _ALL_CUT) ** _SPLIT_POWER
    rounds = (whole + cut * (pairs / processors)) / (1.0 + cut)
    return as_float(unit.block_byte_s) * (cached / pairs) * rounds


def unsplit_time(
    tile_rows: float,
    *,
    rows: Number,
    tokens: Number,
    visible_tokens: Number,
    depth: Number,
    multiprocessors: Number,
    peak_flops_per_s: Number,
) -> Float[Array, "*b"]:
    """Seconds of one layer's attention of several new tokens per sequence in a kernel that does not cut contexts.

    A block takes one query head of one sequence along its whole context, in tiles of as many rows however few there are:

        t = visible · 2 d · tile_rows / (efficiency · peak / multiprocessors) · max(1, blocks / multiprocessors)

    Args:
        tile_rows: static, > 0.
        rows: "*b", >= 0; new tokens of all sequences times query heads.
        tokens: "*b", >= 1; new tokens per sequence.
        visible_tokens: "*b", > 0; that a new token sees, on average.
        depth: "*b", > 0; elements multiplied per row and visible token.
        multiprocessors, peak_flops_per_s: "*b", > 0; of the data sheet.
    Returns:
        "*b", never falling in rows, tokens at a given number of sequences, context and depth.
    Gradient: right but for a kink where a sequence has `tile_rows` tokens.
    Source: FlashAttention 2 (`set_params_splitkv`); efficiency: see `_WALK_EFFICIENCY`.
    """
    rows, tokens, visible, depth, processors, peak = (
        jnp.asarray(as_float(value))
        for value in (rows, tokens, visible_tokens, depth, multiprocessors, peak_flops_per_s)
    )
    blocks = rows / tokens * jnp.maximum(1.0, tokens / tile_rows)
    rounds = smooth_largest(1.0, blocks / processors, temperature=_OVERLAP_TEMPERATURE)
    return visible * (2.0 * tile_rows * depth) * (processors / (_WALK_EFFICIENCY * peak)) * rounds


#: Share of a multiprocessor's peak. Calibrated: the mean of 0.84, 0.83, 0.96 (256 elements per head, 4,096, 32,768 and 200,000
#: tokens) and 0.93 (128 elements, 32,768 tokens) on an RTX 3090, github.com/vllm-project/flash-attention pull request 193, and
#: of 0.76 on an RTX 3090 Ti (31,000 tokens), pull request 190.
_WALK_EFFICIENCY = 0.86


def _joined(memory_s: Float[Array, "*b"], blocks_s: Float[Array, "*b"]) -> Float[Array, "*b"]:
    return smooth_largest(memory_s, blocks_s, temperature=_OVERLAP_TEMPERATURE)


def attention_parts(
    units: Sequence[GpuAttention],
    widths: Sequence[float],
    moved_bytes: Float[Array, "*b"],
    cached_elements: Float[Array, "*b"],
    context_tokens: Float[Array, "*b"],
    pairs: Float[Array, "*b"],
    kv_bits: Float[Array, "*b"],
) -> tuple[Float[Array, "*b"], Float[Array, "*b"]]:
    """Seconds of launches and of streaming with kernels for several widths of keys and values.

    They are mixed by whole times, as formats of weights are (`format_shares`), so that fewer bits never take longer. Nothing
    comes from the cache.

    Args:
        units: one for each width, leaves "*b".
        widths: static, increasing.
        moved_bytes: "*b", at the given bits; what is not cached, as queries, keeps its width.
        cached_elements: "*b", of keys and values, that are read.
        context_tokens: "*b", > 0.
        pairs: "*b", > 0; sequences times key heads.
        kv_bits: "*b", > 0; bits per cached element.
    """
    launches, streams = [], []
    for index, unit in enumerate(units):
        wider = width_in_format(widths, index, kv_bits) - kv_bits
        read = moved_bytes + cached_elements * (wider / BITS_PER_BYTE)
        memory_s = jnp.maximum(streaming_time(unit, read), read / as_float(unit.bandwidth_bytes_per_s))
        cached_bytes = cached_elements * (width_in_format(widths, index, kv_bits) / BITS_PER_BYTE)
        launches.append(jnp.broadcast_to(launch_time(unit, context_tokens, pairs), moved_bytes.shape))
        streams.append(_joined(memory_s, block_time(unit, cached_bytes, pairs)))
    if len(units) == 1:
        return launches[0], streams[0]
    launch_s, total_s = jnp.stack(launches, axis=-1), jnp.stack(launches, axis=-1) + jnp.stack(streams, axis=-1)
    mixed_s = jnp.sum(format_shares(widths, kv_bits, total_s) * total_s, axis=-1)
    # One launch at every width: what overlaps with arithmetic would otherwise fall less than what does not rises.
    least_s = jnp.min(launch_s, axis=-1)
    return least_s, mixed_s - least_s


# Attention of many new tokens on a GPU: prefill, verification, and what lies between.

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
