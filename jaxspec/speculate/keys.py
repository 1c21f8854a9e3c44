"""Random keys of decoding: a function of (seed, purpose, prompt, position), never of a batch, a shard or a device."""

from __future__ import annotations

import enum

import jax
from jaxtyping import Array, Int, Key


class Purpose(enum.IntEnum):
    """Everything that draws random numbers; the values are part of what a seed means and are never reused."""

    ACCEPT = 0  # the uniform that a draft token must pass
    DRAFT = 1  # the draft's own sampling
    NEXT = 2  # the target's token after the accepted ones
    AUTOREGRESSIVE = 3  # autoregressive sampling
    BOOTSTRAP = 4  # resampling of prompts
    BRANCH = 5  # the draft's sampling after the further tokens of a level
    SAMPLE = 6  # one of several continuations of a prompt
    FOLLOW = 7  # what a draft does along a known text


def draw_keys(
    seed: Key[Array, ""], purpose: Purpose, prompt: Int[Array, " batch"], position: Int[Array, " batch"]
) -> Key[Array, " batch"]:
    """One key per sequence."""
    base = jax.random.fold_in(seed, int(purpose))
    return jax.vmap(lambda p, t: jax.random.fold_in(jax.random.fold_in(base, p), t))(prompt, position)
