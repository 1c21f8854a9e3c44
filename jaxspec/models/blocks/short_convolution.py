"""Gated short convolutions in the place of attention, whose inputs are remembered token by token."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxspec.models.blocks.gated_delta_net import convolved, linear_sizes, placed_sources
from jaxspec.models.blocks.interface import AttentionResult, CachedShape, StepInput
from jaxspec.models.matrix import made
from jaxspec.models.sizes import DecoderSizes
from jaxspec.models.stored import biased_rows

__all__ = ["ShortConvolution"]


@dataclasses.dataclass(frozen=True)
class ShortConvolution:
    """Channels that a gate multiplies, joined with those of the tokens right before, and multiplied by a second gate.

    A slot of the cache holds a token's gated channels, in float32, whatever codec the caches of attention have.

    Matrices: `in_z` (the gates before and behind the convolution), `in_qkv` (channels), `out`; `conv` has a row for each
    channel, its last column for the token itself.

    Source: LFM2 in transformers, `Lfm2ShortConv`.
    """

    residual_matrices = ("out",)

    def matrices(self, sizes: DecoderSizes) -> dict[str, tuple[int, ...]]:
        """See `Block`."""
        own, hidden = linear_sizes(sizes), sizes.hidden_size
        into = {"in_qkv": (own.values, hidden), "in_z": (2 * own.values, hidden)}
        return into | {"conv": (own.values, own.conv_tokens), "out": (hidden, own.values)}

    def vectors(self, sizes: DecoderSizes) -> dict[str, tuple[int, float]]:
        """See `Block`."""
        return {}

    def cached_shape(self, sizes: DecoderSizes) -> CachedShape:
        """See `Attention`: all of it in the place of keys, whose slots are last."""
        return CachedShape(1, linear_sizes(sizes).values, 0)

    def apply(
        self,
        normed: Float[Array, "batch token hidden"],
        weights: Mapping[str, Array],
        sizes: DecoderSizes,
        step: StepInput,
    ) -> AttentionResult:
        """See `Attention`. The convolution computes in float32, or in a wider type that comes.

        Raises:
            ValueError: a cache without positions.
        """
        wide = jnp.float64 if normed.dtype == jnp.float64 else jnp.float32
        product = partial(biased_rows, normed, weights, biased=False, dot_dtype=step.dot_dtype)
        before, behind = jnp.split(product(kind="in_z"), 2, axis=-1)
        gated = (before * product(kind="in_qkv")).astype(wide)
        earlier = [
            (source.key[:, 0].astype(wide), source.mask, positions) for source, positions in placed_sources(step)
        ]
        mixed = behind * convolved(gated, made(weights["conv"]).astype(wide), earlier, step).astype(normed.dtype)
        output = biased_rows(mixed, weights, "out", False, step.dot_dtype)
        written = gated.swapaxes(1, 2)[:, None], jnp.zeros((len(gated), 1, gated.shape[1], 0), wide)
        return AttentionResult(output, written, {"linear_in": normed, "linear_out": mixed})
