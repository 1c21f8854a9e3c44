"""Which values of a row a draft keeps: the hard choice by rank, the soft one by the margin to a moving threshold.

Both prune the lowest-scored values of a row. The hard choice prunes round(p n) of n; the soft threshold lies half-way between
the two ranks there, so that the soft mask tends to the hard one as the temperature falls.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int, UInt16, UInt32

#: How far (in log score) the threshold falls below a row's lowest score while p n runs from 1/2 down to 0.
_FADE = 3.0

#: Stands in for the logarithm of a zero score.
_LOG_ZERO = -100.0


@struct.dataclass
class RankedScores:
    """Scores of rows prepared once, for any pruning ratio.

    Attributes:
        log_score: natural logarithm of each value's importance.
        ordered: the same, ascending within each row.
        rank: position of each value in its row's ascending order; ties by position.
    """

    log_score: Float[Array, "*b row column"]
    ordered: Float[Array, "*b row column"]
    rank: Int[Array, "*b row column"]


def log_of(score: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """Logarithm of non-negative scores; a large negative number for zero."""
    return jnp.where(score > 0, jnp.log(jnp.where(score > 0, score, 1.0)), _LOG_ZERO)


def wanda_score(
    weight: Float[Array, "*b row column"], channel_norm: Float[Array, "*b column"]
) -> Float[Array, "*b row column"]:
    """Importance of each weight: |W| times the norm of its input channel.

    Source: Sun et al. 2023, arXiv:2306.11695; Cassandra, IV-B.
    """
    return jnp.abs(weight.astype(jnp.float32)) * channel_norm[..., None, :]


def rank_scores(score: Float[Array, "*b row column"]) -> RankedScores:
    """Prepare non-negative scores."""
    log_score = log_of(score)
    place = jax.lax.broadcasted_iota(jnp.int32, log_score.shape, log_score.ndim - 1)
    # One sort carries the places along; a second one, for the ranks, would cost as much again.
    ordered, order = jax.lax.sort((log_score, place), num_keys=1, is_stable=True)
    rank = jnp.put_along_axis(jnp.zeros_like(order), order, place, axis=-1, inplace=False)
    return RankedScores(log_score=log_score, ordered=ordered, rank=rank)


def num_pruned(prune: Float[Array, "*b"] | float, columns: int) -> Int[Array, "*b"]:
    """Values of a row of `columns` that a pruning ratio takes away."""
    return jnp.round(jnp.asarray(prune) * columns).astype(jnp.int32)


def hard_mask(scores: RankedScores, prune: Float[Array, "*b"]) -> Bool[Array, "*b row column"]:
    """True where a value is kept; `prune` is one ratio for all rows of a matrix."""
    return scores.rank >= num_pruned(prune, scores.rank.shape[-1])[..., None, None]


def threshold(scores: RankedScores, prune: Float[Array, "*b"]) -> Float[Array, "*b row 1"]:
    """Log score that separates pruned from kept, interpolated between ranks so that its gradient reaches the ratio.

    Piecewise linear in `prune`; kinks where prune * columns is a half-integer (the gradient there is the right-hand one).
    """
    columns = scores.ordered.shape[-1]
    place = jnp.asarray(prune) * columns - 0.5
    index = jnp.clip(jnp.floor(place), 0, columns - 2)
    # Not `clip` and `minimum`: they halve the gradient where their arguments are equal.
    fading = place < 0
    share = jnp.where(fading, 0.0, place - index)[..., None, None]
    index = index.astype(jnp.int32)[..., None, None]
    index = jnp.broadcast_to(index, (*scores.ordered.shape[:-1], 1))
    low = jnp.take_along_axis(scores.ordered, index, axis=-1)
    high = jnp.take_along_axis(scores.ordered, index + 1, axis=-1)
    fade = jnp.where(fading, _FADE * 2.0 * place, 0.0)[..., None, None]
    return low + share * (high - low) + fade


def soft_mask(
    scores: RankedScores, prune: Float[Array, "*b"], temperature: Float[Array, ""] | float
) -> Float[Array, "*b row column"]:
    """Sigmoid of the log-score margin over the temperature (> 0)."""
    return jax.nn.sigmoid((scores.log_score - threshold(scores, prune)) / temperature)


def ordered_pattern(log_score: Float[Array, "*b"]) -> UInt32[Array, "*b"]:
    """Integers in the order of float32 values, for `keep_largest`."""
    bits = jax.lax.bitcast_convert_type(log_score, jnp.uint32)
    return jnp.where(bits >> 31 > 0, ~bits, bits | jnp.uint32(1 << 31))


def keep_largest(
    magnitude: UInt16[Array, "*b column"] | UInt32[Array, "*b column"], keep: Int[Array, "*#b"]
) -> Bool[Array, "*b column"]:
    """Mask of the `keep` largest of each row, ties kept from the right (as `hard_mask` does), without sorting.

    Bisection on the bit pattern: a comparison of the row per bit, where a sort of short rows costs many times that in a
    decoding loop on a CPU, and one of long rows five times.

    Args:
        magnitude: patterns whose integer order is the order of importance (bfloat16 with the sign cleared, or
            `ordered_pattern`); the largest 32-bit pattern, a NaN's, must not occur.
        keep: 0 to the row's length.
    """
    narrow_pattern = magnitude.dtype == jnp.uint16
    dtype, rounds, top = (jnp.int32, 17, 1 << 16) if narrow_pattern else (jnp.uint32, 33, (1 << 32) - 1)
    wide = magnitude.astype(dtype)

    def narrow(_, limits):
        low, high = limits  # count(>= low) >= keep, count(>= high) < keep
        middle = low + (high - low) // 2
        enough = jnp.sum(wide >= middle[..., None], axis=-1, dtype=jnp.int32) >= keep
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    keep = jnp.broadcast_to(keep, magnitude.shape[:-1])
    low = jnp.zeros(keep.shape, dtype)
    limit, _ = jax.lax.fori_loop(0, rounds, narrow, (low, jnp.full_like(low, top)))
    above, tied = wide > limit[..., None], wide == limit[..., None]
    room = keep - jnp.sum(above, axis=-1, dtype=jnp.int32)
    from_right = jnp.cumsum(tied[..., ::-1], axis=-1, dtype=jnp.int32)[..., ::-1]
    return above | (tied & (from_right <= room[..., None]))


def keep_best(score: Float[Array, "*b column"], keep: Int[Array, "*#b"]) -> Bool[Array, "*b column"]:
    """`hard_mask` of scores that were not ranked: the `keep` highest of each row."""
    return keep_largest(ordered_pattern(log_of(score)), keep)
