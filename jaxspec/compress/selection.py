"""Which values of a row a draft keeps: the hard choice by rank, the soft one by the margin to a moving threshold.

Both prune the lowest-scored values of a row. The hard choice prunes round(p n) of n; the soft threshold lies half-way between
the two ranks there, so that the soft mask tends to the hard one as the temperature falls. Nothing is sorted and no rank is
kept: the values at a rank are found by bisection, in memory of the size of the row.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt

from jaxspec.compress.rematerialised import save_for_backward

#: How far (in log score) the threshold falls below a row's lowest score while p n runs from 1/2 down to 0.
_FADE = 3.0

#: Stands in for the logarithm of a zero score.
_LOG_ZERO = -100.0


def log_of(score: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """Logarithm of non-negative scores; a large negative number for zero."""
    return jnp.where(score > 0, jnp.log(jnp.where(score > 0, score, 1.0)), _LOG_ZERO)


def wanda_score(
    weight: Float[Array, "*b row column"], channel_norm: Float[Array, "*b column"]
) -> Float[Array, "*b row column"]:
    """Importance of each weight: |W| times the norm of its input channel.

    Source: Sun et al. 2023, arXiv:2306.11695; Cassandra, IV-B.
    """
    return jnp.abs(weight.astype(jnp.float32)) * channel_norm.astype(jnp.float32)[..., None, :]


def num_pruned(prune: Float[Array, "*b"] | float, columns: int) -> Int[Array, "*b"]:
    """Values of a row of `columns` that a pruning ratio takes away."""
    return jnp.round(jnp.asarray(prune) * columns).astype(jnp.int32)


def hard_mask(log_score: Float[Array, "*b row column"], prune: Float[Array, "*b"]) -> Bool[Array, "*b row column"]:
    """True where a value is kept; `prune` is one ratio for all rows of a matrix. Of equal scores the left ones go first."""
    columns = log_score.shape[-1]
    return keep_largest(ordered_pattern(log_score), columns - num_pruned(prune, columns)[..., None])


class Neighbours(NamedTuple):
    """Log scores of two consecutive ranks, in each row."""

    low: Float[Array, "*b row 1"]
    high: Float[Array, "*b row 1"]


def neighbours(log_score: Float[Array, "*b row column"], rank: Int[Array, "*b"]) -> Neighbours:
    """Scores of this rank, counted from the lowest from 0 on, and of the next one. No gradient passes: scores are data."""
    pattern, columns = ordered_pattern(jax.lax.stop_gradient(log_score)), log_score.shape[-1]
    rank = jnp.broadcast_to(rank[..., None], pattern.shape[:-1])
    low = _nth_largest(pattern, columns - rank)[..., None]
    # The next rank has the same value where equal scores reach beyond this one, else the smallest larger value.
    reaches = jnp.sum(pattern <= low, axis=-1, keepdims=True, dtype=jnp.int32) >= rank[..., None] + 2
    largest = jnp.asarray(jnp.iinfo(pattern.dtype).max, pattern.dtype)
    above = jnp.min(jnp.where(pattern > low, pattern, largest), axis=-1, keepdims=True)
    adjacent = (low, jnp.where(reaches, low, above))
    return Neighbours(*(save_for_backward(_from_pattern(part, log_score.dtype)) for part in adjacent))


def threshold(log_score: Float[Array, "*b row column"], prune: Float[Array, "*b"]) -> Float[Array, "*b row 1"]:
    """Log score that separates pruned from kept, interpolated between ranks so that its gradient reaches the ratio.

    Piecewise linear in `prune`; kinks where prune * columns is a half-integer (the gradient there is the right-hand one).
    """
    return _threshold(_place(prune, log_score.shape[-1]), log_score)[0]


class _Place(NamedTuple):
    """Where a ratio divides the ranks: `share` of the way from rank `rank` to the next one, or `fade` below the lowest."""

    rank: Int[Array, "*b"]
    share: Float[Array, "*b 1 1"]
    fade: Float[Array, "*b 1 1"]


def _place(prune: Float[Array, "*b"], columns: int) -> _Place:
    place = jnp.asarray(prune) * columns - 0.5
    index = jnp.clip(jnp.floor(place), 0, columns - 2)
    # Not `clip` and `minimum`: they halve the gradient where their arguments are equal.
    fading = place < 0
    share, fade = jnp.where(fading, 0.0, place - index), jnp.where(fading, _FADE * 2.0 * place, 0.0)
    return _Place(index.astype(jnp.int32), share[..., None, None], fade[..., None, None])


def _threshold(place: _Place, log_score: Float[Array, "*b row column"]) -> tuple[Float[Array, "*b row 1"], Neighbours]:
    near = neighbours(log_score, place.rank)
    return near.low + place.share * (near.high - near.low) + place.fade, near


def _order_of_equals(
    place: _Place, log_score: Float[Array, "*b row column"], near: Neighbours
) -> Float[Array, "*b row column"]:
    """What sets apart values that score the threshold itself, where several do: the left ones go first, as in `hard_mask`.

    They count as 1 / columns apart, which is how far ranks are from one another where log scores spread over 1; 0 for all
    others. It vanishes where the threshold reaches or leaves their score, so that no mask jumps there.
    """
    score, share = jax.lax.stop_gradient(log_score), place.share
    equal = score == near.low
    count = lambda which: save_for_backward(jnp.sum(which, axis=-1, keepdims=True, dtype=jnp.int32))
    pruned, size = place.rank[..., None, None] - count(score < near.low), count(equal)
    # Beyond 1 in the last of few columns; `abs` has no gradient at its kink.
    left = jnp.where(share > 1, share - 1, 1 - share)
    ramp = jnp.where(pruned == 0, share, 1.0) * jnp.where(pruned == size - 2, left, 1.0)
    order = (jnp.cumsum(equal, axis=-1, dtype=jnp.int32) - 1 - pruned).astype(log_score.dtype) - share
    return jnp.where(equal & (near.low == near.high), order * ramp / score.shape[-1], 0.0)


def soft_mask(
    log_score: Float[Array, "*b row column"], prune: Float[Array, "*b"], temperature: Float[Array, ""] | float
) -> Float[Array, "*b row column"]:
    """Sigmoid of the log-score margin over the temperature (> 0); tends to `hard_mask`, of equal scores too."""
    place = _place(prune, log_score.shape[-1])
    limit, near = _threshold(place, log_score)
    return jax.nn.sigmoid((log_score - limit + _order_of_equals(place, log_score, near)) / temperature)


def ordered_pattern(log_score: Float[Array, "*b"]) -> UInt[Array, "*b"]:
    """Unsigned integers of the same width in the order of the values, for `keep_largest`; no NaN may occur."""
    dtype = jnp.dtype(f"uint{8 * log_score.dtype.itemsize}")
    bits, top = jax.lax.bitcast_convert_type(log_score, dtype), _top_bit(dtype)
    return jnp.where(bits >= top, ~bits, bits | top)


def _from_pattern(pattern: UInt[Array, "*b"], dtype: jnp.dtype) -> Float[Array, "*b"]:
    """Inverse of `ordered_pattern`."""
    top = _top_bit(pattern.dtype)
    return jax.lax.bitcast_convert_type(jnp.where(pattern >= top, pattern ^ top, ~pattern), dtype)


def _top_bit(dtype: jnp.dtype) -> Array:
    return jnp.asarray(1 << (8 * dtype.itemsize - 1), dtype)


def keep_largest(magnitude: UInt[Array, "*b column"], keep: Int[Array, "*#b"]) -> Bool[Array, "*b column"]:
    """Mask of the `keep` largest of each row, ties kept from the right, without sorting.

    Args:
        magnitude: patterns whose integer order is the order of importance (bfloat16 with the sign cleared, or
            `ordered_pattern`); the largest pattern of the type, a NaN's, must not occur.
        keep: 0 to the row's length.
    """
    keep = jnp.broadcast_to(keep, magnitude.shape[:-1])
    limit = _nth_largest(magnitude, keep)
    above, tied = magnitude > limit[..., None], magnitude == limit[..., None]
    room = keep - jnp.sum(above, axis=-1, dtype=jnp.int32)
    from_right = jnp.cumsum(tied[..., ::-1], axis=-1, dtype=jnp.int32)[..., ::-1]
    return above | (tied & (from_right <= room[..., None]))


# Compiled once for each shape where it is called outside of a program, in which the loop would be a new one at each call.
@partial(jax.jit, inline=True)
def _nth_largest(magnitude: UInt[Array, "*b column"], count: Int[Array, "*b"]) -> UInt[Array, "*b"]:
    """The largest value that at least `count` values of a row reach; the largest of the type where `count` is 0.

    Bisection on the bit pattern: a comparison of the row per bit, where a sort of short rows costs many times that in a
    decoding loop on a CPU, and one of long rows five times.
    """
    bits = 8 * magnitude.dtype.itemsize
    # The bounds of narrow patterns are wider than these, so that none of them is left out.
    dtype = jnp.dtype(jnp.int32) if bits == 16 else magnitude.dtype
    top = 1 << 16 if bits == 16 else (1 << bits) - 1
    wide = magnitude.astype(dtype)

    def narrow(_, limits):
        low, high = limits  # count(>= low) >= count, count(>= high) < count
        middle = low + (high - low) // 2
        enough = jnp.sum(wide >= middle[..., None], axis=-1, dtype=jnp.int32) >= count
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    low = jnp.zeros(count.shape, dtype)
    limit, _ = jax.lax.fori_loop(0, bits + 1, narrow, (low, jnp.full_like(low, top)))
    return limit.astype(magnitude.dtype)


def keep_largest_of_rows(magnitude: UInt[np.ndarray, "row column"], keep: int) -> Bool[np.ndarray, "row column"]:
    """Mask of the `keep` largest of each row, of equal ones those to the right: `keep_largest` on the host.

    Partitions of rows take a tenth of the time there of the bisection that compiled programs do.

    Args:
        keep: 0 to the row's length.
    """
    rows, columns = magnitude.shape
    if keep in (0, columns):
        return np.full(magnitude.shape, keep > 0)
    limit = np.partition(magnitude, columns - keep, axis=1)[:, columns - keep, None]
    mask = magnitude >= limit
    too_many = np.count_nonzero(mask, axis=1) - keep
    tied = np.flatnonzero(magnitude == limit)  # row after row, each from the left
    row = tied // columns
    in_row = np.arange(tied.size) - np.searchsorted(row, np.arange(rows))[row]
    mask.reshape(-1)[tied[in_row < too_many[row]]] = False
    return mask
