"""Attention of a step: how many tokens a new token sees, how much is multiplied, what is read of the cache.

The cache of the context is read once per sequence, shared by all its new tokens. New keys and values reach attention on
chip and are written to the cache once, at 16 bits: compression of the cache happens later, at no cost here. Scores stay on
chip. Latent attention works on the cached latents, or on keys and values expanded from them, whichever takes fewer FLOPs.
"""

from __future__ import annotations

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.network.architecture import (
    Architecture,
    attention_layers,
    attention_shape,
    cached_rows,
    kv_elements_per_token,
    window_share,
)
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from hwmodels.network.operators.work import AttentionReads
from hwmodels.numerics.scalars import Leaf, Number, as_float, either
from hwmodels.numerics.units import BITS_PER_BYTE

KV_WRITE_BYTES = UNCOMPRESSED_BITS / BITS_PER_BYTE


@flax.struct.dataclass
class AttentionWork:
    """Attention to what is cached, of all layers of a step that have it; leaves "*b"."""

    flops: Leaf
    kv_bytes: Leaf
    visible_tokens: Leaf  # that a new token sees, on average over new tokens and layers
    depth: Leaf  # elements multiplied per query head and visible token, scores and values together
    queries_per_head: Leaf  # rows that share keys of one key-value head, on average over what is visible
    products: Leaf  # products of these rows with keys: sequences x key-value heads, fewer where sequences share keys
    reads: AttentionReads  # what each of these products finds in the cache


def attention_work(
    architecture: Architecture,
    *,
    tokens: Number,
    batch: Number,
    context_tokens: Number,
    visible_new_tokens: Number,
    kv_bits: Number,
    shared_tokens: Number = 0.0,
) -> AttentionWork:
    """Attention of `tokens` new tokens in each of `batch` sequences; arguments "*b", as `step_operators` takes them.

    Source: FLOPs of a matrix product, 2 per element and token, of scores and of values.
    """
    a, shape = architecture, attention_shape(architecture)
    in_window = window_share(a)
    kept = a.window_tokens + a.sink_tokens
    visible = context_tokens + visible_new_tokens
    windowed = visible_in_window(context_tokens, tokens, visible_new_tokens, kept)
    visible = (1.0 - in_window) * visible + in_window * windowed
    absorbed = shape.score_size + shape.value_size
    # Latents expanded to keys and values: narrower rows, but the context's latents are expanded anew in each step.
    narrow = a.head_dim + a.rope_head_dim + a.v_head_dim
    expansion = a.kv_lora_rank * (a.head_dim + a.v_head_dim) * context_tokens / (tokens * visible)
    expanded = narrow + expansion
    depth = either(a.kv_lora_rank > 0, either(expanded < absorbed, expanded, absorbed), absorbed)
    rows = cached_rows(a, context_tokens, batch=batch, shared_tokens=shared_tokens)
    moved = rows * kv_bits / BITS_PER_BYTE + batch * tokens * KV_WRITE_BYTES
    # Queries of all sequences meet the keys that these share in one product. Windows do not change the share here.
    share = either(visible > 0, shared_tokens / either(visible > 0, visible, 1.0), 0.0)
    share = either(share < 1.0, share, 1.0)
    products = shape.kv_heads * (batch * (1.0 - share) + share)
    return AttentionWork(
        flops=2.0 * attention_layers(a) * a.num_heads * depth * visible * tokens * batch,
        kv_bytes=kv_elements_per_token(a) * moved,
        visible_tokens=visible,
        depth=depth,
        queries_per_head=tokens * batch * a.num_heads / products,
        products=products,
        reads=AttentionReads(
            tokens=rows * shape.kv_heads / products,
            elements=shape.cached_elements / shape.kv_heads,
            depth=absorbed,
        ),
    )


def visible_in_window(
    context_tokens: Number, tokens: Number, visible_new_tokens: Number, window_tokens: Number
) -> Float[Array, "*b"]:
    """Tokens that a new token sees through a window, on average over the new ones.

    Args:
        context_tokens, tokens: "*b".
        visible_new_tokens: "*b"; what they see of each other without a window, themselves included.
        window_tokens: "*b", >= 1; the most that is seen, sinks included.
    Returns:
        "*b"; for a chain, where visible_new_tokens is (tokens + 1) / 2, the mean of min(context + i, window) over i = 1 to
        tokens, exact for whole numbers. Otherwise the same with as many tokens at equally spaced depths.
    Gradient: kinks where the window begins and where it ends to cut.
    """
    context, tokens, window = (jnp.asarray(as_float(x)) for x in (context_tokens, tokens, window_tokens))
    # Depths 1, 1 + step, ..., so spaced that their mean is what is visible: 1 for a chain, less for a tree.
    mean = jnp.asarray(as_float(visible_new_tokens))
    several = tokens > 1.0
    step = either(several, 2.0 * (mean - 1.0) / either(several, tokens - 1.0, 1.0), 0.0)
    # Tokens that lie within the window: context + 1 + (i - 1) step <= window.
    flat = step <= 0
    room = window - context - 1.0
    within = either(flat, either(room >= 0, tokens, 0.0), jnp.floor(room / either(flat, 1.0, step)) + 1.0)
    within = jnp.clip(within, 0.0, tokens)
    seen = within * (context + 1.0) + step * within * (within - 1.0) / 2.0
    return (seen + (tokens - within) * window) / tokens
