"""Rotary position embeddings in the half-split convention of the Hugging Face checkpoints."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxspec.models.sizes import DecoderSizes


def inverse_frequencies(sizes: DecoderSizes) -> np.ndarray:
    """Angular frequency of each of the head_dim / 2 planes, radians per position, float32.

    Source: Su et al. 2021, arXiv:2104.09864; scaling as released with Llama 3.1 (long wavelengths divided by `factor`,
    short ones kept, a linear blend between).
    """
    exponent = np.arange(0, sizes.head_dim, 2, dtype=np.float32) / np.float32(sizes.head_dim)
    frequency = (1.0 / np.float32(sizes.rope_theta) ** exponent).astype(np.float32)
    scaling = sizes.rope_scaling
    if scaling is None:
        return frequency
    wavelength = 2 * math.pi / frequency
    context = scaling.original_max_position_embeddings
    blend = (context / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    blend = np.clip(blend, 0.0, 1.0)
    return ((1 - blend) * frequency / scaling.factor + blend * frequency).astype(np.float32)


def rotate(
    x: Float[Array, "*b token head head_dim"], positions: Int[Array, "*b token"], frequency: np.ndarray
) -> Float[Array, "*b token head head_dim"]:
    """Rotate each head's (i, i + head_dim/2) plane by position times frequency."""
    angle = positions[..., None].astype(jnp.float32) * frequency
    cos, sin = jnp.cos(angle)[..., None, :], jnp.sin(angle)[..., None, :]
    low, high = jnp.split(x, 2, axis=-1)
    cos, sin = cos.astype(x.dtype), sin.astype(x.dtype)
    return jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)
