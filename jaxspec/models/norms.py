"""Normalisation of hidden states."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array

__all__ = ["rms_norm"]


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """Root-mean-square normalisation over the last axis, in float32 or wider (Zhang and Sennrich 2019)."""
    wide = x.astype(jnp.float64 if x.dtype == jnp.float64 else jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + eps)
    return (wide * scale).astype(x.dtype) * weight.astype(x.dtype)
