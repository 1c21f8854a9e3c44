"""A dense decoder in Flax NNX, and the one pure function through which everything else runs it.

`Decoder` owns parameters; `forward` is a function of explicit parameters, positions, mask and KV cache. Training, prefill,
decoding, verification of a chain or a tree and the measurement of acceptance differ only in the mask and the cache they pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from jaxspec.models.attention import KVSource, attend, attend_sequentially
from jaxspec.models.config import MATRIX_KINDS, DecoderConfig
from jaxspec.models.dots import dot_rows
from jaxspec.models.kv_cache import KVCache
from jaxspec.models.rope import inverse_frequencies, rotate

#: Nested dictionary of arrays: `embed`, `final_norm`, optionally `lm_head`, and `layers`, whose leaves lead with a layer axis.
Params = dict[str, Any]

#: Applied to the keys and to the values that a step writes, before anything reads them.
KVCodec = Callable[[Array], Array]


class ForwardResult(NamedTuple):
    """Logits of the step's tokens (from `logits_from` on), the KV it wrote, what the last layer put out for each of its tokens
    (before the final norm), and (on request) the inputs of every matrix."""

    logits: Float[Array, "batch token vocab"]
    cache: KVCache
    hidden: Float[Array, "batch token hidden"]
    activations: dict[str, Array] | None = None


class Layers(nnx.Module):
    """All layers at once: each parameter carries a leading layer axis, so that compression treats a kind as one array."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        depth = config.num_layers
        for kind in MATRIX_KINDS:
            rows, columns = config.matrix_shape(kind)
            # Residual-writing matrices start smaller, so that depth does not grow the residual stream (GPT-2).
            scale = columns**-0.5 * ((2 * depth) ** -0.5 if kind in ("o", "down") else 1.0)
            value = scale * jax.random.normal(rngs.params(), (depth, rows, columns))
            setattr(self, kind, nnx.Param(value))
        self.attention_norm = nnx.Param(jnp.ones((depth, config.hidden_size)))
        self.mlp_norm = nnx.Param(jnp.ones((depth, config.hidden_size)))
        if config.qk_norm:
            self.q_norm = nnx.Param(jnp.ones((depth, config.head_dim)))
            self.k_norm = nnx.Param(jnp.ones((depth, config.head_dim)))


class Decoder(nnx.Module):
    """Parameters of a dense decoder (RMSNorm, RoPE, grouped-query attention, SwiGLU).

    Matrices are stored as checkpoints store them, (output row, input column), so that a Wanda row is a row.
    """

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        self.embed = nnx.Param(0.02 * jax.random.normal(rngs.params(), (config.vocab_size, config.hidden_size)))
        self.layers = Layers(config, rngs=rngs)
        self.final_norm = nnx.Param(jnp.ones((config.hidden_size,)))
        if not config.tie_embeddings:
            head = jax.random.normal(rngs.params(), (config.vocab_size, config.hidden_size))
            self.lm_head = nnx.Param(config.hidden_size**-0.5 * head)


def init_params(config: DecoderConfig, key: Array) -> Params:
    """Random parameters as a plain nested dictionary (the NNX state, split once)."""
    return nnx.to_pure_dict(nnx.state(Decoder(config, rngs=nnx.Rngs(params=key)), nnx.Param))


def abstract_params(config: DecoderConfig) -> Params:
    """Shapes and dtypes of the parameters, without allocating them."""
    return jax.eval_shape(lambda: init_params(config, jax.random.key(0)))


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """Root-mean-square normalisation over the last axis, in float32 or wider (Zhang and Sennrich 2019)."""
    wide = x.astype(jnp.float64 if x.dtype == jnp.float64 else jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + eps)
    return (wide * scale).astype(x.dtype) * weight.astype(x.dtype)


class LayerResult(NamedTuple):
    """What a layer puts out, the keys and values it wrote (in the layouts of `KVCache`), and its matrices' inputs or None."""

    output: Float[Array, "batch token hidden"]
    written: tuple[Array, Array]
    activations: dict[str, Array] | None


def decoder_layer(
    x: Float[Array, "batch token hidden"],
    weights: dict[str, Array],
    config: DecoderConfig,
    *,
    positions: Int[Array, "batch token"],
    mask: Bool[Array, "batch token token"],
    cached: tuple[Array, Array] | None = None,
    cache_mask: Bool[Array, "batch token slot"] | None = None,
    kv_codec: KVCodec | None = None,
    dot_dtype: Any = None,
    keep_activations: bool = False,
    frugal: bool = False,
) -> LayerResult:
    """One layer: attention and feed-forward, each after a norm and added to its input. It computes in the type of `x`.

    Args:
        weights: of this layer alone, without the layer axis.
        cached: keys and values of this layer's cache, seen as `cache_mask` says; the others as for `forward`.
    """
    batch, num_tokens, _ = x.shape
    dtype = x.dtype
    normed = rms_norm(x, weights["attention_norm"], config.norm_eps)
    split = lambda y: y.reshape(batch, num_tokens, -1, config.head_dim)
    query, key, value = (split(dot_rows(normed, weights[kind].astype(dtype), dot_dtype)) for kind in ("q", "k", "v"))
    if config.qk_norm:
        query = rms_norm(query, weights["q_norm"], config.norm_eps)
        key = rms_norm(key, weights["k_norm"], config.norm_eps)
    frequency = inverse_frequencies(config)
    query, key = rotate(query, positions, frequency), rotate(key, positions, frequency)
    if kv_codec is not None:
        key, value = kv_codec(key), kv_codec(value)
    key, value = key.transpose(0, 2, 3, 1), value.transpose(0, 2, 1, 3)
    written = key, value
    sources = [KVSource(key, value, mask)]
    if cached is not None:
        key, value = (part.astype(dtype) for part in cached)
        assert cache_mask is not None
        sources.insert(0, KVSource(key, value, cache_mask))
    attended = attend_sequentially(query, sources, dot_dtype) if frugal else attend(query, sources)
    x = x + dot_rows(attended, weights["o"].astype(dtype), dot_dtype)
    mlp_in = rms_norm(x, weights["mlp_norm"], config.norm_eps)
    inner = jax.nn.silu(dot_rows(mlp_in, weights["gate"].astype(dtype), dot_dtype)) * dot_rows(
        mlp_in, weights["up"].astype(dtype), dot_dtype
    )
    x = x + dot_rows(inner, weights["down"].astype(dtype), dot_dtype)
    kept = {"qkv": normed, "o": attended, "gate_up": mlp_in, "down": inner} if keep_activations else None
    return LayerResult(x, written, kept)


def unembed(
    hidden: Float[Array, "*b hidden"], params: Params, config: DecoderConfig, dot_dtype: Any = None
) -> Float[Array, "*b vocab"]:
    """Logits of what the last layer puts out: final norm and LM head.

    Args:
        params: only `final_norm` and `lm_head` (tied: `embed`) are read.
    """
    head = params["embed"] if config.tie_embeddings else params["lm_head"]
    normed = rms_norm(hidden, params["final_norm"], config.norm_eps)
    return dot_rows(normed, head.astype(hidden.dtype), dot_dtype)


def forward(
    params: Params,
    config: DecoderConfig,
    *,
    tokens: Int[Array, "batch token"],
    positions: Int[Array, "batch token"],
    mask: Bool[Array, "batch token token"],
    cache: KVCache | None = None,
    cache_mask: Bool[Array, "batch token slot"] | None = None,
    kv_codec: KVCodec | None = None,
    dtype: Any = jnp.float32,
    dot_dtype: Any = None,
    keep_activations: bool = False,
    logits_from: int = 0,
    frugal: bool = False,
) -> ForwardResult:
    """Run one step over `tokens`, which see the masked slots of `cache` and the masked tokens of the step itself.

    Args:
        params: as made by `init_params`.
        config: static.
        tokens, positions: "batch token"; any order, any repetition (a tree's siblings share a position).
        mask: True where a token (row) sees a token of this step (column).
        cache, cache_mask: earlier KV and which of its slots each token sees; both or neither.
        kv_codec: applied to the new keys and values before anyone reads them.
        dtype: of activations. dot_dtype: of the operands of matrix products, `dtype` unless given (see `dot_rows`).
        keep_activations: also return the input of each matrix group, "layer batch token column".
        logits_from: static; first token of the step whose logits are wanted.
        frugal: for training on CPUs: attend sequentially and recompute each layer in the backward pass.
    Returns:
        logits, the KV written by this step (not merged into `cache`), activations or None.
    Raises:
        ValueError: a cache without its mask, or the reverse.
    """
    if (cache is None) != (cache_mask is None):
        raise ValueError("cache and cache_mask go together; one was given without the other")
    chex.assert_rank([tokens, positions, mask], [2, 2, 3])
    chex.assert_equal_shape([tokens, positions])

    def layer(x, weights, cached):
        return decoder_layer(
            x,
            weights,
            config,
            positions=positions,
            mask=mask,
            cached=cached,
            cache_mask=cache_mask,
            kv_codec=kv_codec,
            dot_dtype=dot_dtype,
            keep_activations=keep_activations,
            frugal=frugal,
        )

    x = params["embed"].astype(dtype)[tokens]
    body = jax.checkpoint(layer) if frugal else layer
    all_written, recorded = [], []
    # A plain loop, not `lax.scan`: a scan copies each layer's weights and cache out of their stacks in every step.
    for i in range(config.num_layers):
        weights = jax.tree.map(lambda leaf, i=i: leaf[i], params["layers"])
        cached = None if cache is None else (cache.key[i], cache.value[i])
        x, kv, kept = body(x, weights, cached)
        all_written.append(kv)
        recorded.append(kept)
    keys, values = zip(*all_written, strict=True)
    return ForwardResult(
        logits=unembed(x[:, logits_from:], params, config, dot_dtype),
        cache=KVCache(key=keys, value=values),
        hidden=x,
        activations=jax.tree.map(lambda *leaves: jnp.stack(leaves), *recorded) if keep_activations else None,
    )


def causal_mask(batch: int, num_tokens: int) -> Bool[Array, "batch token token"]:
    """Each token sees itself and all before it."""
    return jnp.broadcast_to(jnp.tril(jnp.ones((num_tokens, num_tokens), bool)), (batch, num_tokens, num_tokens))


def forward_text(params: Params, config: DecoderConfig, tokens: Int[Array, "batch token"], **options) -> ForwardResult:
    """`forward` over whole texts from position 0 with a causal mask and no cache."""
    batch, num_tokens = tokens.shape
    positions = jnp.broadcast_to(jnp.arange(num_tokens), tokens.shape)
    mask = causal_mask(batch, num_tokens)
    return forward(params, config, tokens=tokens, positions=positions, mask=mask, **options)
