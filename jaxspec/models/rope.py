"""Rotary position embeddings: queries and keys turned by angles that grow with the position."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxspec.models.rope_scaling import Rope

__all__ = ["chosen_rope", "rotate"]


def chosen_rope(
    ropes: Sequence[Rope | None], rotary_dim: int, lengths: Int[Array, "*b token"], choice: Int[Array, ""] | None
) -> tuple[np.ndarray | Float[Array, "*frequency"], np.ndarray | Float[Array, ""]]:
    """Frequencies of the planes and the factor of cosines and sines, of the rotation that a layer has.

    Args:
        ropes: all rotations of the network; None turns nothing: its frequencies are 0.
        lengths: tokens of the text that each token belongs to.
        choice: the layer's, by its place among them, so that layers of different rotations are one program; None: the first.
    Returns:
        "plane" or "*b token plane"; a scalar.
    """
    found = [
        np.zeros((rotary_dim + 1) // 2, np.float32) if rope is None else rope.frequencies(rotary_dim, lengths)
        for rope in ropes
    ]
    factors = np.array([1.0 if rope is None else rope.attention_factor for rope in ropes], np.float32)
    if choice is None:
        return found[0], factors[0]
    return jnp.stack(jnp.broadcast_arrays(*found))[choice], jnp.asarray(factors)[choice]


def rotate(
    x: Float[Array, "*b token head head_dim"],
    positions: Int[Array, "*b token"],
    frequency: np.ndarray | Float[Array, "*frequency"],
    *,
    factor: np.ndarray | Float[Array, ""] | float = 1.0,
    interleaved: bool = False,
) -> Float[Array, "*b token head head_dim"]:
    """Rotate planes of each head by position times frequency; elements beyond those of the planes are kept.

    Args:
        frequency: "plane", radians per position; or "*b token plane", for each token.
        factor: of cosines and sines.
        interleaved: plane i is elements (2i, 2i + 1) rather than (i, i + planes).
    """
    angle = positions[..., None].astype(jnp.float32) * frequency
    cos, sin = factor * jnp.cos(angle)[..., None, :], factor * jnp.sin(angle)[..., None, :]
    cos, sin = cos.astype(x.dtype), sin.astype(x.dtype)
    planes = frequency.shape[-1]
    turned, kept = x[..., : 2 * planes], x[..., 2 * planes :]
    if interleaved:
        low, high = turned[..., 0::2], turned[..., 1::2]
        parts = jnp.stack([low * cos - high * sin, high * cos + low * sin], axis=-1).reshape(turned.shape)
    else:
        low, high = jnp.split(turned, 2, axis=-1)
        parts = jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)
    return jnp.concatenate([parts, kept], axis=-1) if kept.shape[-1] else parts
