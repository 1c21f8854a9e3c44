"""Rotary position embeddings: queries and keys turned by angles that grow with the position."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxspec.models.rope_scaling import Rope

__all__ = ["chosen_rope", "rotate", "text_lengths"]


def chosen_rope(
    ropes: Sequence[Rope | None], rotary_dim: int, lengths: Int[Array, "*b token"], choice: Int[Array, ""] | None
) -> tuple[np.ndarray | Float[Array, "*frequency"], float | Float[Array, ""] | None]:
    """Frequencies of the planes and the factor of cosines and sines, of the rotation that a layer has.

    Args:
        ropes: all rotations of the network; None turns nothing: its frequencies are 0.
        lengths: tokens of the text that each token belongs to.
        choice: the layer's, by its place among them, so that layers of different rotations are one program; None: the first.
    Returns:
        "plane" or "*b token plane"; a scalar, or None for 1.
    """
    still = np.zeros((rotary_dim + 1) // 2, np.float32)
    found = [still if rope is None else rope.frequencies(rotary_dim, lengths) for rope in ropes]
    factors = [1.0 if rope is None else rope.attention_factor for rope in ropes]
    if choice is None:
        return found[0], None if factors[0] == 1 else factors[0]
    factor = None if set(factors) == {1.0} else jnp.asarray(factors, jnp.float32)[choice]
    return jnp.stack(jnp.broadcast_arrays(*found))[choice], factor


def text_lengths(positions: Int[Array, "batch token"], prompt: Int[Array, "#batch"]) -> Int[Array, "batch token"]:
    """Tokens of the text that each token is rotated for where the prompt is processed at once and what follows token by token:
    all of the prompt's for its own, those up to itself for each that follows.

    Args:
        prompt: tokens of each prompt.
    """
    return jnp.maximum(positions + 1, prompt[:, None])


def rotate(
    x: Float[Array, "*b token head head_dim"],
    positions: Int[Array, "*b token"],
    frequency: np.ndarray | Float[Array, "*frequency"],
    *,
    factor: float | Float[Array, ""] | None = None,
    interleaved: bool = False,
) -> Float[Array, "*b token head head_dim"]:
    """Rotate planes of each head by position times frequency; elements beyond those of the planes are kept.

    Args:
        frequency: "plane", radians per position; or "*b token plane", for each token.
        factor: of cosines and sines; None: 1.
        interleaved: plane i is elements (2i, 2i + 1) rather than (i, i + planes).
    """
    angle = positions[..., None].astype(jnp.float32) * jax.lax.broadcast_to_rank(frequency, positions.ndim + 1)
    cos, sin = jnp.cos(angle)[..., None, :], jnp.sin(angle)[..., None, :]
    if factor is not None:
        cos, sin = factor * cos, factor * sin
    cos, sin = cos.astype(x.dtype), sin.astype(x.dtype)
    size = 2 * frequency.shape[-1]
    if size < x.shape[-1]:
        return jnp.concatenate([_turned(x[..., :size], cos, sin, interleaved), x[..., size:]], axis=-1)
    return _turned(x, cos, sin, interleaved)


def _turned(x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    if interleaved:
        low, high = x[..., 0::2], x[..., 1::2]
        return jnp.stack([low * cos - high * sin, high * cos + low * sin], axis=-1).reshape(x.shape)
    low, high = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)
