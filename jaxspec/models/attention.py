"""Grouped-query attention over one or several sources of keys and values, each with its explicit mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxspec.models.dots import dot_rows


class KVSource(NamedTuple):
    """Keys, values, and which of them each query sees; the first two of every sequence, or of one that all share."""

    key: Float[Array, "#batch kv_head head_dim slot"]
    value: Float[Array, "#batch kv_head slot head_dim"]
    mask: Bool[Array, "batch token slot"]


def _scores(grouped: Float[Array, "batch kv_head row head_dim"], key: Array) -> Float[Array, "batch kv_head row slot"]:
    if key.shape[0] == 1 < grouped.shape[0]:
        return jnp.einsum("bkqd,kds->bkqs", grouped, key[0])
    return jnp.einsum("bkqd,bkds->bkqs", grouped, key)


def _weighted(
    weights: Float[Array, "batch kv_head row slot"], value: Array
) -> Float[Array, "batch kv_head row head_dim"]:
    if value.shape[0] == 1 < weights.shape[0]:
        return jnp.einsum("bkqs,ksd->bkqd", weights, value[0])
    return jnp.einsum("bkqs,bksd->bkqd", weights, value)


def _scaled(score: Array, head_dim: int, scale: float | None, cap: float | None) -> Array:
    score = score * (head_dim**-0.5 if scale is None else scale)
    return score if cap is None else cap * jnp.tanh(score / cap)


def attend(
    query: Float[Array, "batch token head head_dim"],
    sources: Sequence[KVSource],
    *,
    scale: float | None = None,
    cap: float | None = None,
) -> Float[Array, "batch token head_times_dim"]:
    """Softmax attention over all sources at once, without concatenating their keys.

    A source of one sequence is shared by all: each KV head's keys meet the queries of the whole batch in one product.
    A row whose masks are all False gets the mean of its values: finite, and never read by a caller that masks it.

    Args:
        scale: of the scores; None: 1 / sqrt(head_dim).
        cap: soft cap of the scaled scores; None: no cap. Source: Gemma 2, arXiv:2408.00118, Section 2.
    """
    batch, tokens, heads, head_dim = query.shape
    kv_heads = sources[0].key.shape[1]
    groups = heads // kv_heads
    grouped = query.reshape(batch, tokens, kv_heads, groups, head_dim).transpose(0, 2, 3, 1, 4)
    grouped = grouped.reshape(batch, kv_heads, groups * tokens, head_dim)
    scores = []
    for source in sources:
        score = _scaled(_scores(grouped, source.key), head_dim, scale, cap)
        score = score.reshape(batch, kv_heads, groups, tokens, -1)
        scores.append(jnp.where(source.mask[:, None, None], score, jnp.finfo(query.dtype).min))
    weights = jax.nn.softmax(jnp.concatenate(scores, axis=-1), axis=-1)
    weights = weights.reshape(batch, kv_heads, groups * tokens, -1)
    output, start = jnp.zeros_like(grouped), 0
    for source in sources:
        slots = source.value.shape[2]
        output += _weighted(weights[..., start : start + slots], source.value)
        start += slots
    output = output.reshape(batch, kv_heads, groups, tokens, head_dim).transpose(0, 3, 1, 2, 4)
    return output.reshape(batch, tokens, heads * head_dim)


def attend_sequentially(
    query: Float[Array, "batch token head head_dim"],
    sources: Sequence[KVSource],
    dot_dtype: Any = None,
    *,
    scale: float | None = None,
    cap: float | None = None,
) -> Float[Array, "batch token head_times_dim"]:
    """`attend`, one sequence and one KV head at a time, recomputed in the backward pass.

    The scores of one pair stay in a CPU's cache, where those of a whole batch do not: twice the speed of `attend` in
    training there, and memory linear in the batch. On a GPU `attend` is the faster one.
    """
    batch, tokens, heads, head_dim = query.shape
    kv_heads = sources[0].key.shape[1]
    groups = heads // kv_heads
    # Keys and values that all sequences share are repeated here: training has none.
    spread = lambda part: jnp.broadcast_to(part, (batch, *part.shape[1:]))
    key, value, mask = (
        jnp.concatenate(list(map(spread, parts)), axis=axis)
        for parts, axis in zip(zip(*sources, strict=True), (3, 2, 2), strict=True)
    )
    grouped = query.reshape(batch, tokens, kv_heads, groups, head_dim).transpose(0, 2, 3, 1, 4)
    pairs = (
        grouped.reshape(batch * kv_heads, groups * tokens, head_dim),
        key.transpose(0, 1, 3, 2).reshape(batch * kv_heads, -1, head_dim),
        value.transpose(0, 1, 3, 2).reshape(batch * kv_heads, head_dim, -1),
        jnp.repeat(mask, kv_heads, axis=0),
    )

    @jax.checkpoint
    def one_pair(pair):
        query, key, value, mask = pair
        score = _scaled(dot_rows(query, key, dot_dtype).reshape(groups, tokens, -1), head_dim, scale, cap)
        weight = jax.nn.softmax(jnp.where(mask, score, jnp.finfo(score.dtype).min), axis=-1)
        return dot_rows(weight.reshape(groups * tokens, -1), value, dot_dtype)

    output = jax.lax.map(one_pair, pairs).reshape(batch, kv_heads, groups, tokens, head_dim)
    return output.transpose(0, 3, 1, 2, 4).reshape(batch, tokens, heads * head_dim)
