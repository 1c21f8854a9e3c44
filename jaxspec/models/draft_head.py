"""A draft head: one decoder layer that continues the target's hidden states, between the target's embedding and its LM head.

At place t it reads the token at t + 1 and the target's last hidden state at t (or its own prediction of it, where the target
has not been), and predicts the hidden state at t + 1; the target's own final norm and LM head read a distribution off it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from jaxspec.models.apart import only_layer
from jaxspec.models.attention import KVSource
from jaxspec.models.blocks import StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Layers, Params
from jaxspec.models.decoder_layer import decoder_layer
from jaxspec.models.ends import head_of, unembed
from jaxspec.models.kv_cache import CachedKV, KVCache
from jaxspec.models.matrix import Matrix, matrix_of, stack_of
from jaxspec.models.norms import rms_norm

__all__ = [
    "DraftHead",
    "HeadResult",
    "TargetEnds",
    "abstract_head_params",
    "check_head_config",
    "head_forward",
    "head_logits",
    "init_head_params",
    "target_ends",
]


class TargetEnds(NamedTuple):
    """What a head shares with its target, and never trains: a tied LM head is the embedding."""

    embed: Float[Array, "vocab hidden"] | Matrix
    final_norm: Float[Array, " hidden"]
    lm_head: Float[Array, "vocab hidden"] | Matrix
    final_norm_bias: Float[Array, " hidden"] | None = None


class HeadResult(NamedTuple):
    """Predicted hidden state of the token that each place reads, and the KV that the places wrote."""

    hidden: Float[Array, "batch place hidden"]
    cache: KVCache


class DraftHead(nnx.Module):
    """Parameters of a head: two norms, the matrix that mixes token and hidden state, one decoder layer."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        check_head_config(config)
        hidden = config.hidden_size
        self.embed_norm = nnx.Param(jnp.ones((hidden,)))
        self.hidden_norm = nnx.Param(jnp.ones((hidden,)))
        value = jax.random.normal(rngs.params(), (hidden, 2 * hidden))
        self.fc = nnx.Param((2 * hidden) ** -0.5 * value)
        self.layers = Layers(config, rngs=rngs)


def check_head_config(config: DecoderConfig) -> None:
    """A head has one layer, which sees the whole text and rotates its queries and keys.

    Raises:
        NotImplementedError: another number of layers, a window, linear attention, or positions that are learned.
    """
    if config.num_layers != 1:
        raise NotImplementedError(f"a draft head of {config.num_layers} layers is not modelled; allowed is 1")
    if config.needs_positions or config.ropes == (None,):
        what = "with a window" if config.windowed else "without rotary positions"
        what = what if config.mixed_layers is None else "with linear attention"
        raise NotImplementedError(
            f"a draft head {what} is not modelled; allowed is full attention with rotary positions"
        )


def init_head_params(config: DecoderConfig, key: Array) -> Params:
    """Random parameters as a plain nested dictionary: `embed_norm`, `hidden_norm`, `fc`, and `layers` with a leading axis of 1.

    Raises:
        NotImplementedError: see `check_head_config`.
    """
    return nnx.to_pure_dict(nnx.state(DraftHead(config, rngs=nnx.Rngs(params=key)), nnx.Param))


def abstract_head_params(config: DecoderConfig) -> Params:
    """Shapes and dtypes of the parameters, without allocating them."""
    return jax.eval_shape(lambda: init_head_params(config, jax.random.key(0)))


def target_ends(params: Params) -> TargetEnds:
    """The parts of a target's parameters that its head uses."""
    head = head_of(params)
    return TargetEnds(params["embed"], params["final_norm"], head, params.get("final_norm_bias"))


def head_forward(
    params: Params,
    config: DecoderConfig,
    *,
    ends: TargetEnds,
    tokens: Int[Array, "batch place"],
    hidden: Float[Array, "batch place hidden"],
    positions: Int[Array, "batch place"],
    mask: Bool[Array, "batch place place"],
    sources: Sequence[CachedKV] = (),
    dot_dtype: Any = None,
    frugal: bool = False,
) -> HeadResult:
    """Run the head over some places, which see the masked slots of all sources and the masked places of the step itself.

    Args:
        params: as made by `init_head_params`.
        config: static; of one layer, with the target's hidden size, vocabulary and norm.
        tokens: at place t, the token after the one that `hidden` belongs to.
        hidden: the target's (before its final norm), or the head's own predictions; the head computes in its type.
        positions: of the hidden states' tokens.
        mask, sources, dot_dtype, frugal: as for `forward`; caches have one layer.
    Source: Li et al. 2024, EAGLE, arXiv:2401.15077, Section 4; training on its own predictions: Li et al. 2025, EAGLE-3,
        arXiv:2503.01840; the same shape for long contexts: Yang et al. 2025, LongSpec, arXiv:2502.17421.
    Departs: both inputs are normed before they are mixed, since the residual stream is many times longer than an
        embedding; only the last layer's hidden states are read.
    """
    dtype = hidden.dtype
    embedded = rms_norm(stack_of(ends.embed).take(tokens).values().astype(dtype), params["embed_norm"], config.norm_eps)
    normed = rms_norm(hidden, params["hidden_norm"], config.norm_eps)
    mixed = matrix_of(params["fc"]).dot(jnp.concatenate([embedded, normed], axis=-1), dot_dtype)
    seen = [KVSource(source.cache.key[0], source.cache.value[0], source.mask) for source in sources]
    result = decoder_layer(
        mixed,
        only_layer(params["layers"]),
        config,
        config.blocks(0),
        StepInput(positions, mask, seen, dot_dtype=dot_dtype, frugal=frugal),
    )
    return HeadResult(hidden=result.output, cache=jax.tree.map(lambda leaf: leaf[None], KVCache(*result.written)))


def head_logits(
    hidden: Float[Array, "*b hidden"], ends: TargetEnds, config: DecoderConfig, dot_dtype: Any = None
) -> Float[Array, "*b vocab"]:
    """What the target would say after a token with this hidden state."""
    # A tied head is in `lm_head` already, whatever the head's own shape says of ties.
    untied = dataclasses.replace(config, tie_embeddings=False)
    return unembed(hidden, ends._asdict(), untied, dot_dtype)
