"""FlashAttention in 16-bit floats with exponentials from a table, as a mobile NPU computes it: takes the place of `attend`.

Source: Scaling LLM test-time compute with mobile NPU, Algorithm 1 and 5.2.1. Scores, numerators, the running
maximum, sum and output are float16; products and row sums are accumulated in float32 and rounded.
Departs: the printed O starts with B_q x B_kv entries, it must be B_q x d. Scores are scaled in the float32 accumulator, before
    they are rounded: the paper prints no place, and its matrix unit scales there. A row whose keys are all masked so far keeps
    its zeros, where the printed algorithm has no number.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float16

from jaxspec.formats.exp_table import build_table, exp_nonpositive
from jaxspec.models.attention import KVSource, grouped_queries, joined_heads, scaled_scores

__all__ = ["KV_TILE", "FlashState", "attend_fp16", "flash_state"]

#: Keys of a tile: a tile of the matrix unit has 32 columns.
KV_TILE = 32


class FlashState(NamedTuple):
    """What is kept of the tiles seen so far."""

    output: Float16[Array, "*b row value_dim"]  # not yet divided by the sum
    row_max: Float16[Array, "*b row"]
    row_sum: Float16[Array, "*b row"]


@cache
def _table() -> np.ndarray:
    """On the host, so that a program may hold it as a constant."""
    with jax.ensure_compile_time_eval():
        return np.asarray(build_table())


def _exp(x: Float16[Array, "*b"]) -> Float16[Array, "*b"]:
    return exp_nonpositive(x, jnp.asarray(_table()))


@jax.custom_jvp
def _half(x: Array) -> Float16[Array, "*b"]:
    """Rounded to float16; the derivative is passed through.

    By way of its bits: XLA may drop a conversion whose result is widened again; `reduce_precision` has no subnormals.
    """
    return jax.lax.bitcast_convert_type(jax.lax.bitcast_convert_type(x.astype(jnp.float16), jnp.uint16), jnp.float16)


@_half.defjvp
def _half_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return _half(*primals), tangents[0].astype(jnp.float16)


def flash_state(
    query: Float16[Array, "*b row head_dim"],
    key: Float16[Array, "*b head_dim slot"],
    value: Float16[Array, "*b slot value_dim"],
    mask: Bool[Array, "*b row slot"],
    *,
    scale: float | None = None,
    cap: float | None = None,
    sinks: Float16[Array, "*b row"] | None = None,
    tile: int = KV_TILE,
) -> FlashState:
    """Algorithm 1 over all tiles of keys, before the last line.

    Args:
        mask: True where a row sees a slot.
        scale, cap: as for `attend`.
        sinks: a score of each row that takes its share of the sum and adds nothing, seen before all keys.
        tile: keys of a tile; the last one is padded with masked keys.
    """
    slots = key.shape[-1]
    missing = -slots % tile
    pad = lambda x, axis: jnp.pad(x, [(0, missing if i == axis % x.ndim else 0) for i in range(x.ndim)])
    tiles = (slots + missing) // tile
    # The tile axis in front, for a loop over it.
    split = lambda x, axis: jnp.moveaxis(
        pad(x, axis).reshape(*x.shape[: axis % x.ndim], tiles, tile, *x.shape[axis % x.ndim + 1 :]), axis % x.ndim, 0
    )
    start = FlashState(
        output=jnp.zeros((*query.shape[:-1], value.shape[-1]), jnp.float16),
        row_max=jnp.full(query.shape[:-1], -jnp.inf, jnp.float16) if sinks is None else sinks,
        row_sum=jnp.full(query.shape[:-1], 0.0 if sinks is None else 1.0, jnp.float16),
    )

    def one_tile(state: FlashState, part: tuple[Array, Array, Array]) -> tuple[FlashState, None]:
        keys, values, seen = part
        score = jnp.einsum("...qd,...ds->...qs", query, keys, preferred_element_type=jnp.float32)
        score = scaled_scores(score, query.shape[-1], scale, cap)
        score = jnp.where(seen, _half(score), -jnp.inf).astype(jnp.float16)
        row_max = jnp.maximum(state.row_max, jax.lax.stop_gradient(jnp.max(score, axis=-1)))
        # A row that sees nothing yet has no maximum to subtract.
        reference = jnp.where(jnp.isneginf(row_max), jnp.float16(0), row_max)
        weight = _exp(score - reference[..., None])
        kept = _exp(state.row_max - reference)
        wide = lambda x: x.astype(jnp.float32)
        row_sum = wide(kept) * wide(state.row_sum) + jnp.sum(weight, axis=-1, dtype=jnp.float32)
        added = jnp.einsum("...qs,...sv->...qv", weight, values, preferred_element_type=jnp.float32)
        output = wide(kept)[..., None] * wide(state.output) + added
        return FlashState(_half(output), row_max, _half(row_sum)), None

    found, _ = jax.lax.scan(one_tile, start, (split(key, -1), split(value, -2), split(mask, -1)))
    return found


def attend_fp16(
    query: Float[Array, "batch token head head_dim"],
    sources: Sequence[KVSource],
    *,
    scale: float | None = None,
    cap: float | None = None,
    sinks: Float[Array, " head"] | None = None,
    value_query: Float[Array, "batch token head value_dim"] | None = None,
) -> Float[Array, "batch token head_times_dim"]:
    """Softmax attention over all sources, one after the other, in float16; arguments as for `attend`.

    Queries, keys and values are rounded to float16 (what lies beyond its range becomes infinite). A row whose masks are all
    False gets zeros. The result has the dtype of `query`.

    Raises:
        NotImplementedError: a second part of the query, as absorbed latent attention has one.
    """
    if value_query is not None:
        raise NotImplementedError("latent attention with absorbed projections has no form in float16 tiles yet")
    batch, tokens, heads, _ = query.shape
    kv_heads = sources[0].key.shape[1]
    groups = heads // kv_heads
    spread = lambda part: jnp.broadcast_to(part, (batch, *part.shape[1:]))
    join = lambda parts, axis: _half(jnp.concatenate([spread(part) for part in parts], axis=axis))
    mask = jnp.concatenate([source.mask for source in sources], axis=-1)
    rows = groups * tokens
    state = flash_state(
        _half(grouped_queries(query, kv_heads)),
        join([source.key for source in sources], 3),
        join([source.value for source in sources], 2),
        jnp.broadcast_to(jnp.tile(mask, (1, groups, 1))[:, None], (batch, kv_heads, rows, mask.shape[-1])),
        scale=scale,
        cap=cap,
        sinks=None if sinks is None else _half(_rows_of(sinks, batch, kv_heads, tokens)),
    )
    total = jnp.where(state.row_sum > 0, state.row_sum, jnp.float16(1)).astype(jnp.float32)
    output = _half(state.output.astype(jnp.float32) / total[..., None])
    return joined_heads(output.reshape(batch, kv_heads, groups, tokens, -1)).astype(query.dtype)


def _rows_of(sinks: Float[Array, " head"], batch: int, kv_heads: int, tokens: int) -> Float[Array, "batch kv_head row"]:
    """Of each row of a group of heads, its head's."""
    return jnp.broadcast_to(
        jnp.repeat(sinks.reshape(kv_heads, -1), tokens, axis=1), (batch, kv_heads, sinks.size * tokens // kv_heads)
    )
