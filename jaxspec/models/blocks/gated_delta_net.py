"""Linear attention of a layer: a gated delta net, whose tokens are remembered one by one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.networks import LinearSizes
from jaxspec.models.activations import ACTIVATIONS
from jaxspec.models.attention import KVSource
from jaxspec.models.blocks.interface import AttentionResult, CachedShape, StepInput
from jaxspec.models.delta_rule import Decays, Remembered, at_slots, delta_rule
from jaxspec.models.matrix import made
from jaxspec.models.norms import rms_norm
from jaxspec.models.sizes import DecoderSizes
from jaxspec.models.stored import biased_rows

__all__ = ["GatedDeltaNet"]

#: What the norms of queries and keys add to the square of their length: of Qwen3-Next's network in transformers, no setting.
_EPS = 1e-6


@dataclasses.dataclass(frozen=True)
class GatedDeltaNet:
    """Queries, keys and values through a short convolution, a matrix per value head that forgets and corrects itself, and a
    gated norm of what each head puts out.

    The matrix is never made (see `jaxspec.models.delta_rule`). A slot of the cache holds a token's keys, its sums of decay, its
    updates, and its projections, which the convolution of the next tokens reads; in float32, whatever codec the caches of
    attention have.

    Matrices: `in_qkv` (queries, keys, values of all heads), `in_z` (gates), `in_b` and `in_a` (how much a head learns and
    forgets), `out`; `conv` has a row for each channel of `in_qkv`, its last column for the token itself.

    Source: Yang et al. 2024, arXiv:2412.06464, with projections, convolution and gates of Qwen3.5 in transformers.
    """

    def matrices(self, sizes: DecoderSizes) -> dict[str, tuple[int, ...]]:
        """See `Block`."""
        own, hidden = _own(sizes), sizes.hidden_size
        rows = {"in_qkv": own.convolved, "in_z": own.values, "in_b": own.value_heads, "in_a": own.value_heads}
        return {name: (count, hidden) for name, count in rows.items()} | {
            "conv": (own.convolved, own.conv_tokens),
            "out": (hidden, own.values),
        }

    @property
    def residual_matrices(self) -> tuple[str, ...]:
        """See `Block`."""
        return ("out",)

    def vectors(self, sizes: DecoderSizes) -> dict[str, tuple[int, float]]:
        """See `Block`."""
        own = _own(sizes)
        return {"dt_bias": (own.value_heads, 1.0), "a_log": (own.value_heads, 0.0), "out_norm": (own.value_dim, 1.0)}

    def cached_shape(self, sizes: DecoderSizes) -> CachedShape:
        """See `Attention`: all of it in the place of keys, whose slots are last."""
        own = _own(sizes)
        return CachedShape(1, own.keys + own.values + 2 * own.value_heads + own.convolved, 0)

    def apply(
        self,
        normed: Float[Array, "batch token hidden"],
        weights: Mapping[str, Array],
        sizes: DecoderSizes,
        step: StepInput,
    ) -> AttentionResult:
        """See `Attention`. The rule computes in float32, or in a wider type that comes.

        Raises:
            NotImplementedError: attention is asked for in another way.
            ValueError: a cache without positions.
        """
        if step.attend is not None:
            raise NotImplementedError(
                "another way to attend (attend) came, and layers with linear attention have no softmax to compute in it; leave "
                "attend out, or take a network without linear attention"
            )
        if any(positions is None for positions in step.source_positions):
            raise ValueError(
                "a cache has no positions, which convolutions need; make it with `empty_cache` of this network"
            )
        own, dtype = _own(sizes), normed.dtype
        wide = jnp.float64 if dtype == jnp.float64 else jnp.float32
        product = partial(biased_rows, normed, weights, biased=False, dot_dtype=step.dot_dtype)
        projected = product(kind="in_qkv").astype(wide)
        sources = [
            (_remembered(source, own, wide), source.mask, positions)
            for source, positions in zip(step.sources, step.source_positions, strict=True)
            if positions is not None
        ]
        mixed = ACTIVATIONS[sizes.activation](_convolved(projected, made(weights["conv"]).astype(wide), sources, step))
        by_head = lambda part, heads: part.reshape(*part.shape[:2], heads, -1).transpose(0, 2, 1, 3)
        query, key = (by_head(part, own.key_heads) for part in jnp.split(mixed[..., : 2 * own.keys], 2, axis=-1))
        value = by_head(mixed[..., 2 * own.keys :], own.value_heads)
        query, key = own.key_dim**-0.5 * _of_length_one(query), _of_length_one(key)
        vector = lambda name: weights[name].astype(wide)[None, None]
        beta = jax.nn.sigmoid(product(kind="in_b").astype(wide))
        log_decay = -jnp.exp(vector("a_log")) * jax.nn.softplus(product(kind="in_a").astype(wide) + vector("dt_bias"))
        heads_first = lambda part: part.transpose(0, 2, 1)
        read, decays, update = delta_rule(
            query,
            value,
            heads_first(log_decay),
            heads_first(beta),
            key,
            mask=step.mask,
            sources=sources,
            order=step.order,
        )
        normal = rms_norm(read.transpose(0, 2, 1, 3), weights["out_norm"], sizes.norm_eps)
        gate = product(kind="in_z").astype(wide).reshape(normal.shape)
        attended = (normal * jax.nn.silu(gate)).reshape(*normed.shape[:2], -1).astype(dtype)
        output = biased_rows(attended, weights, "out", False, step.dot_dtype)
        return AttentionResult(
            output, _written(key, decays, update, projected), {"linear_in": normed, "linear_out": attended}
        )


def _own(sizes: DecoderSizes) -> LinearSizes:
    if sizes.linear is None:
        raise ValueError("linear is None, and a layer has linear attention; give its sizes")
    return sizes.linear


def _of_length_one(x: Float[Array, "*b element"]) -> Array:
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + _EPS)


def _convolved(
    projected: Float[Array, "batch token channel"],
    taps: Float[Array, "channel tap"],
    sources: Sequence[tuple[Remembered, Array, Array]],
    step: StepInput,
) -> Float[Array, "batch token channel"]:
    """Each channel over a token and those right before it, which are told by their positions, wherever they lie."""
    found = projected * taps[None, None, :, -1]
    own = (projected.swapaxes(1, 2), step.mask, step.positions)
    places = [*((remembered.projected, seen, positions) for remembered, seen, positions in sources), own]
    for distance in range(1, taps.shape[1]):
        for channels, seen, positions in places:
            at = seen & (positions[:, None, :] == step.positions[:, :, None] - distance)
            earlier = at_slots(channels, jnp.argmax(at, axis=-1)).swapaxes(1, 2)
            there = jnp.any(at, axis=-1)[..., None]
            found = found + jnp.where(there, earlier * taps[None, None, :, -1 - distance], 0)
    return found


def _remembered(source: KVSource, own: LinearSizes, wide: Any) -> Remembered:
    """What a slot holds, in the order of `_written`."""
    rows = source.key[:, 0].astype(wide)
    sizes = [own.keys, own.value_heads, own.value_heads, own.values]
    ends = [sum(sizes[: place + 1]) for place in range(len(sizes))]
    key, whole, rest, update, projected = jnp.split(rows, ends, axis=1)
    by_head = lambda part, heads: part.reshape(len(rows), heads, -1, rows.shape[-1])
    return Remembered(by_head(key, own.key_heads), Decays(whole, rest), by_head(update, own.value_heads), projected)


def _written(
    key: Float[Array, "batch key_head token key_dim"],
    decays: Decays,
    update: Float[Array, "batch value_head token value_dim"],
    projected: Float[Array, "batch token channel"],
) -> tuple[Array, Array]:
    """What the cache holds of the tokens of a step."""
    flat = lambda part: part.swapaxes(2, 3).reshape(len(part), -1, part.shape[2])
    rows = jnp.concatenate([flat(key), *decays, flat(update), projected.swapaxes(1, 2)], axis=1)
    return rows[:, None], jnp.zeros((len(rows), 1, rows.shape[-1], 0), rows.dtype)
