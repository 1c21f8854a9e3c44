"""A decoder network in Flax NNX, and the one pure function through which everything else runs it.

`Network` owns parameters; `forward` is a function of explicit parameters, positions, mask and sources of earlier KV. Training,
prefill, decoding, verification of a chain or a tree and the measurement of acceptance differ only in masks and sources.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from jaxspec.models.allowed_experts import MoreExperts
from jaxspec.models.blocks import StepInput
from jaxspec.models.blocks.interface import Attend, KVCodec
from jaxspec.models.config import DecoderConfig
from jaxspec.models.ends import embed, unembed
from jaxspec.models.kv_cache import CachedKV, KVCache
from jaxspec.models.layer_loops import LayerView, through_layers
from jaxspec.models.router_choices import RouterChoices
from jaxspec.models.text_order import TextOrder

#: Nested dictionary of arrays: `embed`, `final_norm`, optionally `lm_head`, and `layers`, whose leaves lead with an axis over
#: the layers that have them (see `DecoderConfig.layer_parameters`).
Params = dict[str, Any]


class ForwardResult(NamedTuple):
    """Logits of the step's tokens (from `logits_from` on), the KV it wrote, what the last layer put out for each of its tokens
    (before the final norm), and (on request) what was kept of the inputs of every matrix.

    `extras` are the choices of the routers, None of dense networks; their layers are those that have a router.
    `facts` are what a view of the layers told of each; leaves lead with a layer axis.
    """

    logits: Float[Array, "batch token vocab"]
    cache: KVCache
    hidden: Float[Array, "batch token hidden"]
    activations: dict[str, Array] | None = None
    extras: RouterChoices | None = None
    facts: Any = None


class Layers(nnx.Module):
    """All layers at once: each parameter carries a leading layer axis, so that compression treats a kind as one array."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        for name, parameter in config.layer_parameters.items():
            shape = (parameter.num_layers, *parameter.shape)
            if parameter.initial is not None:
                value = jnp.full(shape, parameter.initial)
            else:
                # Matrices that write to the residual stream start smaller, so that depth does not make it grow (GPT-2).
                scale = shape[-1] ** -0.5 * ((2 * config.num_layers) ** -0.5 if parameter.residual else 1.0)
                value = scale * jax.random.normal(rngs.params(), shape)
            setattr(self, name, nnx.Param(value))


class Network(nnx.Module):
    """Parameters of a decoder: embedding (with positions, where they are learned), layers, final norm, LM head.

    Matrices are stored as checkpoints store them, (output row, input column), so that a Wanda row is a row.
    """

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        hidden = config.hidden_size

        def parameter(name: str) -> nnx.Param:
            shape, initial = config.outside_parameters[name]
            if initial is not None:
                return nnx.Param(jnp.full(shape, initial))
            scale = hidden**-0.5 if name == "lm_head" else 0.02
            return nnx.Param(scale * jax.random.normal(rngs.params(), shape))

        self.embed = parameter("embed")
        self.layers = Layers(config, rngs=rngs)
        for name in config.outside_parameters:
            if name != "embed":
                setattr(self, name, parameter(name))


def init_params(config: DecoderConfig, key: Array) -> Params:
    """Random parameters as a plain nested dictionary (the NNX state, split once)."""
    return nnx.to_pure_dict(nnx.state(Network(config, rngs=nnx.Rngs(params=key)), nnx.Param))


def abstract_params(config: DecoderConfig) -> Params:
    """Shapes and dtypes of the parameters, without allocating them."""
    return jax.eval_shape(lambda: init_params(config, jax.random.key(0)))


def forward(
    params: Params,
    config: DecoderConfig,
    *,
    tokens: Int[Array, "batch token"],
    positions: Int[Array, "batch token"],
    mask: Bool[Array, "batch token token"],
    sources: Sequence[CachedKV] = (),
    kv_codec: KVCodec | None = None,
    dtype: Any = jnp.float32,
    dot_dtype: Any = None,
    keep_activations: Callable[[Array], Array] | None = None,
    logits_from: int = 0,
    frugal: bool = False,
    lengths: Int[Array, "batch token"] | None = None,
    view: LayerView | None = None,
    allowed_experts: Bool[Array, "layer batch *token expert"] | None = None,
    more_experts: MoreExperts | None = None,
    attend: Attend | None = None,
    order: TextOrder | None = None,
) -> ForwardResult:
    """Run one step over `tokens`, which see the masked slots of all sources and the masked tokens of the step itself.

    Args:
        params: as made by `init_params`.
        config: static.
        tokens, positions: "batch token"; any order, any repetition (a tree's siblings share a position).
        mask: True where a token (row) sees a token of this step (column). Tokens of networks with linear attention stand behind
            all tokens of the step that they see.
        sources: earlier KV, any number of caches, each with the slots that each token sees.
        kv_codec: applied to the new keys and values before anyone reads them.
        dtype: of activations. dot_dtype: of the operands of matrix products, `dtype` unless given (see `dot_rows`).
        keep_activations: also return this function of the input of each matrix group, "batch token column", stacked over the
            layers that have it. A function that sums over tokens keeps memory small.
        logits_from: static; first token of the step whose logits are wanted; the number of tokens for none.
        frugal: for training on CPUs: attend sequentially and recompute each layer in the backward pass.
        lengths: tokens of the text that each token is rotated for, where that matters (dynamic scaling, LongRoPE); None: as
             many as there are up to the token, so that decoding does not depend on how many tokens a step takes.
        view: how layers are read, if not as they are stored.
        allowed_experts: which experts each sequence's tokens (or each token) may choose, in the layers that have a router;
            None: all.
        more_experts: a larger set beside them, for a blend of both (see `MoreExperts`); None: there is none.
        attend: in another way than `jaxspec.models.attention.attend`, as `attend_fp16`; static.
        order: of sums over all sources but the first (see `attend`); None: that of their slots.
    Returns:
        logits, the KV written by this step (not merged into any source), activations or None, choices of experts or None.
    """
    chex.assert_rank([tokens, positions, mask], [2, 2, 3])
    chex.assert_equal_shape([tokens, positions])
    step = StepInput(
        positions,
        mask,
        kv_codec=kv_codec,
        dot_dtype=dot_dtype,
        frugal=frugal,
        attend=attend,
        lengths=lengths,
        order=order,
    )
    x = embed(tokens, positions, params, config, dtype)
    x, found = through_layers(
        x,
        params["layers"],
        config,
        step,
        sources=sources,
        keep_activations=keep_activations,
        view=view,
        pools=(allowed_experts, more_experts),
    )
    return ForwardResult(
        logits=unembed(x[:, logits_from:], params, config, dot_dtype),
        cache=found.cache,
        hidden=x,
        activations=found.inputs if keep_activations else None,
        extras=None if found.choices is None else jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 2), found.choices),
        facts=found.facts,
    )


def causal_mask(batch: int, num_tokens: int) -> Bool[Array, "batch token token"]:
    """Each token sees itself and all before it."""
    return jnp.broadcast_to(jnp.tril(jnp.ones((num_tokens, num_tokens), bool)), (batch, num_tokens, num_tokens))


def forward_text(params: Params, config: DecoderConfig, tokens: Int[Array, "batch token"], **options) -> ForwardResult:
    """`forward` over whole texts from position 0 with a causal mask and no cache; rotations are those of the whole text."""
    batch, num_tokens = tokens.shape
    options.setdefault("lengths", jnp.full(tokens.shape, num_tokens))
    positions = jnp.broadcast_to(jnp.arange(num_tokens), tokens.shape)
    mask = causal_mask(batch, num_tokens)
    return forward(params, config, tokens=tokens, positions=positions, mask=mask, **options)
