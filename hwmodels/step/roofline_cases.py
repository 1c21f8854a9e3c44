"""Speedup of tree speculation where a roofline says how long a verification takes: bound by arithmetic, by memory, by either.

All times are in units of one autoregressive step T_v(1), so that only three things matter: tokens per cycle AAT(x), drafting
alpha(x), and where the ridge x_R lies. Arrays are "*b length", as in `hwmodels.speculation.verification_length`.

Source: Boosting the Performance of Tree-Based Speculative Decoding of LLMs on FPGAs, III-B, Eq. (9) to (15).
"""

from __future__ import annotations

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.numerics.scalars import Number, as_float, same_rank

__all__ = [
    "MixedSpeedup",
    "compute_bound_speedup",
    "draft_ratio",
    "memory_bound_speedup",
    "mixed_speedup",
]


def draft_ratio(draft_parameters: Number, target_parameters: Number, depth: Number) -> Float[Array, "... length"]:
    """Drafting over one autoregressive step: alpha(x) = (draft's parameters / target's) depth(x).

    Args:
        draft_parameters, target_parameters: "*b length" or what broadcasts with it, > 0; those that one pass reads.
        depth: "*b length", >= 0; forward passes of the draft per cycle.
    Source: Eq. (11).
    """
    return jnp.asarray(as_float(draft_parameters)) / as_float(target_parameters) * as_float(depth)


def compute_bound_speedup(lengths: Number, accepted_tokens: Number, ratio: Number = 0.0) -> Float[Array, "... length"]:
    """Speedup where even one token is bound by arithmetic, T_v(x) = x T_v(1): AAT(x) / (x + alpha), below 1 if AAT < x.

    Args:
        lengths, accepted_tokens: "*b length".
        ratio: "*b length", >= 0, alpha(x); 0 gives the bound itself.
    Source: Eq. (9).
    """
    accepted = jnp.asarray(as_float(accepted_tokens))
    return accepted / (jnp.asarray(as_float(lengths), accepted.dtype) + as_float(ratio))


def memory_bound_speedup(accepted_tokens: Number, ratio: Number) -> Float[Array, "... length"]:
    """Speedup where a verification takes as long as one step: AAT(x) / (1 + alpha(x)).

    Args:
        accepted_tokens, ratio: "*b length"; ratio is alpha(x) >= 0.
    Source: Eq. (10) and (12).
    Departs: Eq. (10) prints a(x), which Eq. (1) uses for something else; alpha(x) of Eq. (11) is meant.
    """
    return jnp.asarray(as_float(accepted_tokens)) / (1.0 + as_float(ratio))


@flax.struct.dataclass
class MixedSpeedup:
    """Speedup that is bound by memory at first and by arithmetic beyond the ridge."""

    by_length: Float[Array, "... length"]
    below_ridge: Float[Array, "*b"]  # Speedup_1: the highest with x < x_R; 0 if no length is
    above_ridge: Float[Array, "*b"]  # Speedup_2: the highest with x >= x_R; 0 if no length is
    best: Float[Array, "*b"]
    best_length: Float[Array, "*b"]  # may have a speedup below 1; `decide` says whether to use it


def mixed_speedup(lengths: Number, accepted_tokens: Number, *, ratio: Number, ridge: Number) -> MixedSpeedup:
    """Speedup on both sides of the ridge, and the best of either.

    Args:
        lengths: "length" or "*b length".
        accepted_tokens: "*b length".
        ratio: "*b length", alpha(x) >= 0: drafting over one autoregressive step.
        ridge: "*b", x_R >= 1; T_v(x) is T_v(1) below it and (x / x_R) T_v(1) from it on.
    Source: Eq. (13) to (15).
    Departs: beyond the ridge AAT / (x / x_R + alpha), from Eq. (7) and (10). Eq. (14) prints AAT x_R / (x (1 + alpha)), in
        which drafting takes longer along with the verification, and no maximum over x, which its text asks for.
    Gradient: right for every input; a kink at the ridge.
    """
    accepted = jnp.asarray(as_float(accepted_tokens))
    ridge = jnp.asarray(as_float(ridge), accepted.dtype)[..., None]
    length = jnp.asarray(as_float(lengths), accepted.dtype)
    accepted, ridge, length, ratio = same_rank(accepted, ridge, length, as_float(ratio))
    speedup = accepted / (jnp.maximum(length / ridge, 1.0) + ratio)
    length = jnp.broadcast_to(length, speedup.shape)
    chosen = jnp.argmax(speedup, axis=-1)
    return MixedSpeedup(
        by_length=speedup,
        below_ridge=jnp.max(jnp.where(length < ridge, speedup, 0.0), axis=-1),
        above_ridge=jnp.max(jnp.where(length >= ridge, speedup, 0.0), axis=-1),
        best=jnp.max(speedup, axis=-1),
        best_length=jnp.take_along_axis(length, chosen[..., None], axis=-1)[..., 0],
    )
