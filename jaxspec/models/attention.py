"""Attention of groups of query heads over one or several sources of keys and values, each with its explicit mask.

Heads of a query may have a second part, which meets the values: where one latent vector per token is both (latent attention),
it is stored once. A learned logit per head, a sink, may take part in the softmax without any value.

Source: sinks: gpt-oss model card, arXiv:2508.10925, Section 2; latent vectors: DeepSeek-V2, arXiv:2405.04434, Section 2.1.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hwmodels.numerics.compensated_sums import EXACT
from jaxspec.models.decoding_programs import computed_once
from jaxspec.models.dots import dot_rows

__all__ = [
    "KVSource",
    "TextOrder",
    "attend",
    "attend_sequentially",
    "grouped_queries",
    "joined_heads",
    "product_by_sequence",
    "scaled_scores",
    "text_order",
]

# Attention whose sums run in the order of the text, wherever keys and values lie.


class TextOrder(NamedTuple):
    """Where the near tokens of each query lie, among the columns of their sources side by side.

    Attributes:
        column: of the token at each place, the query itself at the last.
        known: whether there is one.
    """

    column: Int[Array, "batch token place"]
    known: Bool[Array, "batch token place"]

    def scores(self, scores: Float[Array, "batch kv_head group token column"]) -> Array:
        """Scores by place, the least number where there is no token."""
        found = jnp.take_along_axis(scores, self.column[:, None, None], axis=-1)
        return jnp.where(self.known[:, None, None], found, jnp.finfo(scores.dtype).min)

    def weighted(
        self,
        weights: Float[Array, "batch kv_head group token place"],
        values: Float[Array, "batch kv_head column value_dim"],
    ) -> Float[Array, "batch kv_head group token value_dim"]:
        """Sums of the values at all places.

        A product over columns, with zeros between them, would be no such sum: its kernel chooses an order by where they lie.
        """
        by_place = jax.vmap(lambda values, column: values[:, column])(values, self.column)
        return jnp.sum(weights[..., None] * by_place[:, :, None], axis=-2)


def text_order(
    positions: Int[Array, "batch token"],
    of_columns: Int[Array, "batch column"],
    seen: Bool[Array, "batch token column"],
    places: int,
) -> TextOrder:
    """The order of the `places` tokens that end with each query.

    Args:
        positions: of the queries. of_columns: positions of what they may see.
        seen: columns that a query sees: one of a position at most.
    """
    before = positions[:, :, None, None] - of_columns[:, None, None, :]
    at = seen[:, :, None, :] & (before == places - 1 - jnp.arange(places)[None, None, :, None])
    return TextOrder(jnp.argmax(at, axis=-1), jnp.any(at, axis=-1))


class KVSource(NamedTuple):
    """Keys, values, and which of them each query sees; the first two of every sequence, or of one that all share."""

    key: Float[Array, "#batch kv_head key_dim slot"]
    value: Float[Array, "#batch kv_head slot value_dim"]
    mask: Bool[Array, "batch token slot"]


def product_by_sequence(rows: str, stored: str, result: str, left: Array, right: Array) -> Array:
    """Of the rows of each sequence with what is stored of it, or of the one sequence that all share."""
    if right.shape[0] == 1 < left.shape[0]:
        return jnp.einsum(f"b{rows},{stored}->b{result}", left, right[0], precision=EXACT)
    return jnp.einsum(f"b{rows},b{stored}->b{result}", left, right, precision=EXACT)


def grouped_queries(
    query: Float[Array, "batch token head dim"], kv_heads: int
) -> Float[Array, "batch kv_head group_times_token dim"]:
    """Queries by the KV head that they read."""
    batch, tokens, heads, dim = query.shape
    apart = query.reshape(batch, tokens, kv_heads, heads // kv_heads, dim).transpose(0, 2, 3, 1, 4)
    return apart.reshape(batch, kv_heads, -1, dim)


def joined_heads(
    output: Float[Array, "batch kv_head group token dim"],
) -> Float[Array, "batch token head_times_dim"]:
    """Outputs of grouped queries by token, heads side by side."""
    batch, _, _, tokens, _ = output.shape
    return output.transpose(0, 3, 1, 2, 4).reshape(batch, tokens, -1)


def scaled_scores(score: Array, head_dim: int, scale: float | None, cap: float | None) -> Array:
    """Scores scaled and capped; see `attend`."""
    score = score * (head_dim**-0.5 if scale is None else scale)
    return score if cap is None else cap * jnp.tanh(score / cap)


def attend(
    query: Float[Array, "batch token head key_dim"],
    sources: Sequence[KVSource],
    *,
    scale: float | None = None,
    cap: float | None = None,
    sinks: Float[Array, " head"] | None = None,
    value_query: Float[Array, "batch token head value_dim"] | None = None,
    order: TextOrder | None = None,
) -> Float[Array, "batch token head_times_dim"]:
    """Softmax attention over all sources at once, without concatenating their keys.

    A source of one sequence is shared by all: each KV head's keys meet the queries of the whole batch in one product.
    A row whose masks are all False gets the mean of its values, or 0 beside a sink: finite, and never read by a caller that
    masks it.

    Args:
        scale: of the scores; None: 1 / sqrt(key_dim).
        cap: soft cap of the scaled scores; None: no cap. Source: Gemma 2, arXiv:2408.00118, Section 2.
        sinks: a logit of each head, neither scaled nor capped, that takes its share of the softmax and gives nothing.
        value_query: second part of the query, whose products with the values are added to those with the keys.
        order: of the sums over all sources but the first, which are small and are joined; None: that of their slots.
    """
    batch, tokens, heads, key_dim = query.shape
    kv_heads = sources[0].key.shape[1]
    if order is not None:
        sources = [sources[0], _joined(sources[1:])]
    grouped = grouped_queries(query, kv_heads)
    latent = None if value_query is None else grouped_queries(value_query, kv_heads)
    scores = []
    for source in sources:
        score = product_by_sequence("kqd", "kds", "kqs", grouped, source.key)
        if latent is not None:
            score += product_by_sequence("kqd", "ksd", "kqs", latent, source.value)
        score = computed_once(score)
        score = scaled_scores(score, key_dim, scale, cap)
        score = score.reshape(batch, kv_heads, heads // kv_heads, tokens, -1)
        scores.append(jnp.where(source.mask[:, None, None], score, jnp.finfo(query.dtype).min))
    if order is not None:
        scores[1] = order.scores(scores[1])
    ends = np.cumsum([score.shape[-1] for score in scores])
    if sinks is not None:
        sink = sinks.astype(query.dtype).reshape(1, kv_heads, -1, 1, 1)
        scores.append(jnp.broadcast_to(sink, (*scores[0].shape[:-1], 1)))
    weights = jax.nn.softmax(jnp.concatenate(scores, axis=-1), axis=-1)
    added = [_weighted] * len(sources)
    if order is not None:
        added[1] = order.weighted
    of_sources = jnp.split(weights, ends, axis=-1)  # and the sinks' share, which has no values
    parts = [add(own, source.value) for add, own, source in zip(added, of_sources, sources)]
    return joined_heads(functools.reduce(jnp.add, parts))


def _weighted(
    weights: Float[Array, "batch kv_head group token slot"], values: Float[Array, "#batch kv_head slot value_dim"]
) -> Float[Array, "batch kv_head group token value_dim"]:
    """Sums of the values of all slots."""
    *lead, group, token, slots = weights.shape
    product = product_by_sequence("kqs", "ksd", "kqd", weights.reshape(*lead, group * token, slots), values)
    return product.reshape(*lead, group, token, -1)


def _joined(sources: Sequence[KVSource]) -> KVSource:
    """Several sources side by side, as one."""
    keys, values, masks = zip(*sources, strict=True)
    return KVSource(jnp.concatenate(keys, axis=3), jnp.concatenate(values, axis=2), jnp.concatenate(masks, axis=2))


def attend_sequentially(
    query: Float[Array, "batch token head key_dim"],
    sources: Sequence[KVSource],
    dot_dtype: Any = None,
    *,
    scale: float | None = None,
    cap: float | None = None,
    sinks: Float[Array, " head"] | None = None,
    value_query: Float[Array, "batch token head value_dim"] | None = None,
) -> Float[Array, "batch token head_times_dim"]:
    """`attend`, one sequence and one KV head at a time, recomputed in the backward pass.

    The scores of one pair stay in a CPU's cache, where those of a whole batch do not: twice the speed of `attend` in
    training there, and memory linear in the batch. On a GPU `attend` is the faster one.
    """
    batch, tokens, heads, key_dim = query.shape
    kv_heads = sources[0].key.shape[1]
    groups = heads // kv_heads
    # Keys and values that all sequences share are repeated here: training has none.
    spread = lambda part: jnp.broadcast_to(part, (batch, *part.shape[1:]))
    key, value, mask = _joined([KVSource(*map(spread, source)) for source in sources])
    by_pair = lambda part: part.reshape(batch * kv_heads, *part.shape[2:])
    grouped, key = grouped_queries(query, kv_heads), key.transpose(0, 1, 3, 2)
    if value_query is not None:
        grouped = jnp.concatenate([grouped, grouped_queries(value_query, kv_heads)], axis=-1)
        key = jnp.concatenate([key, value], axis=-1)
    pairs = (
        by_pair(grouped),
        by_pair(key),
        by_pair(value.transpose(0, 1, 3, 2)),
        jnp.repeat(mask, kv_heads, axis=0),
        None if sinks is None else jnp.tile(sinks.astype(query.dtype).reshape(kv_heads, groups), (batch, 1)),
    )

    @jax.checkpoint
    def one_pair(pair):
        query, key, value, mask, sink = pair
        score = scaled_scores(dot_rows(query, key, dot_dtype).reshape(groups, tokens, -1), key_dim, scale, cap)
        score = jnp.where(mask[None], score, jnp.finfo(score.dtype).min)
        if sink is not None:
            column = jnp.broadcast_to(sink[:, None, None], (groups, tokens, 1))
            score = jnp.concatenate([score, column], axis=-1)
        weight = jax.nn.softmax(score, axis=-1)[..., : mask.shape[-1]]
        return dot_rows(weight.reshape(groups * tokens, -1), value, dot_dtype)

    output = jax.lax.map(one_pair, pairs).reshape(batch, kv_heads, groups, tokens, -1)
    return joined_heads(output)
