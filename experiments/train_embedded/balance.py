"""Balance of a router's experts: how the choices are spread, and the correction that keeps every expert in use."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

__all__ = ["LoadSummary", "expert_load", "load_push", "load_summary"]


class LoadSummary(NamedTuple):
    """Spread of the choices of each layer's router.

    Attributes:
        least, most: share of the tokens that go through the least and the most chosen expert.
        entropy: of the choices, in bits; the logarithm of the number of experts where all are chosen equally often.
    """

    least: Float[np.ndarray, " layer"]
    most: Float[np.ndarray, " layer"]
    entropy: Float[np.ndarray, " layer"]


def expert_load(choices: Int[Array, "batch token layer chosen"], num_experts: int) -> Float[Array, "layer expert"]:
    """Share of the tokens that go through each expert; a layer's shares sum to the experts per token."""
    batch, tokens, layers, _ = choices.shape
    rows = jnp.arange(layers)[None, None, :, None]
    return jnp.zeros((layers, num_experts)).at[rows, choices].add(1.0) / (batch * tokens)


def load_push(load: Float[Array, "layer expert"], band: tuple[float, float]) -> Float[Array, "layer expert"]:
    """Direction in which each expert's score is to be corrected: 1 (up), 0 or -1, piecewise constant in the load.

    Args:
        band: loads over their mean that are left as they are.
    Source: DeepSeek-V3, arXiv:2412.19437, Section 2.1.2.
    Departs: the source has no band; here experts may differ in load, as the popularity of experts in large networks does.
    """
    low, high = band
    relative = load / jnp.mean(load, axis=-1, keepdims=True)
    return jnp.where(relative < low, 1.0, jnp.where(relative > high, -1.0, 0.0))


def load_summary(load: Float[np.ndarray, "layer expert"]) -> LoadSummary:
    """Spread of a load over the experts of each layer."""
    share = load / load.sum(axis=-1, keepdims=True)
    entropy = -np.sum(np.where(share > 0, share * np.log2(np.where(share > 0, share, 1)), 0), axis=-1)
    return LoadSummary(load.min(axis=-1), load.max(axis=-1), entropy)
