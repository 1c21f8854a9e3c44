"""Both ends of a decoder network: what enters the first layer, and logits of what the last one puts out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxspec.models.config import DecoderConfig
from jaxspec.models.matrix import stack_of
from jaxspec.models.norms import NORMS

__all__ = ["embed", "head_input", "head_of", "unembed"]


def embed(
    tokens: Int[Array, "batch token"],
    positions: Int[Array, "batch token"],
    params: Mapping[str, Any],
    config: DecoderConfig,
    dtype: Any = jnp.float32,
) -> Float[Array, "batch token hidden"]:
    """What enters the first layer: the tokens' embeddings, scaled, and where positions are learned, theirs.

    Args:
        params: only `embed` and `position_embed` are read.
    """
    x = stack_of(params["embed"]).take(tokens).values().astype(dtype)
    if config.embedding_scale != 1:
        x = x * config.embedding_scale
    if config.learned_positions is not None:
        x = x + stack_of(params["position_embed"]).take(positions + config.learned_positions.offset).values().astype(
            dtype
        )
    return x


def head_of(params: Mapping[str, Any]) -> Any:
    """The matrix that hidden states are multiplied by: a network's own head, or without one (tied) its embedding."""
    return params["lm_head"] if "lm_head" in params else params["embed"]


def head_input(
    hidden: Float[Array, "*b hidden"], params: Mapping[str, Any], config: DecoderConfig
) -> Float[Array, "*b hidden"]:
    """What the LM head multiplies: the final norm of what the last layer puts out."""
    return NORMS[config.norm].apply(hidden, params, "final_norm", config.norm_eps)


def unembed(
    hidden: Float[Array, "*b hidden"], params: Mapping[str, Any], config: DecoderConfig, dot_dtype: Any = None
) -> Float[Array, "*b vocab"]:
    """Logits of what the last layer puts out: final norm and LM head.

    Args:
        params: only `final_norm` (and its bias) and the head (see `head_of`) are read.
    """
    logits = stack_of(head_of(params)).dot(head_input(hidden, params, config), dot_dtype)
    if config.logit_divisor != 1:
        logits = logits / config.logit_divisor
    return logits if config.logit_cap is None else config.logit_cap * jnp.tanh(logits / config.logit_cap)
