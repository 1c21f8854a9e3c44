"""A decoder network in Flax NNX, and the one pure function through which everything else runs it.

`Network` owns parameters; `forward` is a function of explicit parameters, positions, mask and sources of earlier KV. Training,
prefill, decoding, verification of a chain or a tree and the measurement of acceptance differ only in masks and sources.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from jaxspec.models.blocks import StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.kv_cache import KVCache
from jaxspec.models.layer_loops import LayerView, through_layers
from jaxspec.models.router import RouterChoices
from jaxspec.models.special_tokens import embed, unembed

#: Nested dictionary of arrays: `embed`, `final_norm`, optionally `lm_head`, and `layers`, whose leaves lead with an axis over
#: the layers that have them (see `DecoderConfig.layer_parameters`).
Params = dict[str, Any]


class ForwardResult(NamedTuple):
    """Logits of the step's tokens (from `logits_from` on), the KV it wrote, what the last layer put out for each of its tokens
    (before the final norm), and (on request) what was kept of the inputs of every matrix.

    `extras` are the choices of the routers, None of dense networks; their layers are those that have a router.
    `facts` are what a view of the layers told of each; leaves lead with a layer axis.
    `inner` are the inputs of some layers, side by side, where `hidden_of` asks for them.
    """

    logits: Float[Array, "batch token vocab"]
    cache: KVCache
    hidden: Float[Array, "batch token hidden"]
    activations: dict[str, Array] | None = None
    extras: RouterChoices | None = None
    facts: Any = None
    inner: Float[Array, "batch token features"] | None = None

    @property
    def for_draft(self) -> Float[Array, "batch token features"]:
        """The hidden states that a draft reads."""
        return self.hidden if self.inner is None else self.inner


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
    """A decoder as a Flax module: embedding (with positions, where they are learned), layers, final norm, LM head.

    Matrices are stored as checkpoints store them, (output row, input column), so that a Wanda row is a row. `nnx.split` gives
    the configuration and, as state, the parameters that `forward` takes; both are all there is.
    """

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        self.config, hidden = config, config.hidden_size

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

    @classmethod
    def of(cls, config: DecoderConfig, params: Params) -> Network:
        """The module of given parameters, arrays that it shares until one of both is changed."""
        module = nnx.eval_shape(lambda: cls(config, rngs=nnx.Rngs(0)))
        graph, state = nnx.split(module)
        nnx.replace_by_pure_dict(state, params)
        return nnx.merge(graph, state)

    def __call__(self, tokens: Int[Array, "batch token"]) -> Float[Array, "batch token vocab"]:
        """Logits behind each token of texts that begin at position 0; `forward` has masks, caches and all else.

        Raises:
            ValueError: other tokens than whole numbers in rows.
        """
        tokens = jnp.asarray(tokens)
        if tokens.ndim != 2 or not tokens.size or not jnp.issubdtype(tokens.dtype, jnp.integer):
            given = f"{tokens.dtype} of shape {tokens.shape}"
            raise ValueError(f"tokens are {given}; give whole numbers, a row for each text, as in module(tokens[None])")
        return forward_text(self.params, self.config, tokens).logits

    @property
    def params(self) -> Params:
        """Its parameters as `forward` takes them."""
        return nnx.to_pure_dict(nnx.state(self, nnx.Param))


def init_params(config: DecoderConfig, key: Array) -> Params:
    """Random parameters as a plain nested dictionary (the NNX state, split once)."""
    return Network(config, rngs=nnx.Rngs(params=key)).params


def abstract_params(config: DecoderConfig) -> Params:
    """Shapes and dtypes of the parameters, without allocating them."""
    return jax.eval_shape(lambda: init_params(config, jax.random.key(0)))


def forward(
    params: Params,
    config: DecoderConfig,
    tokens: Int[Array, "batch token"],
    step: StepInput,
    *,
    dtype: Any = jnp.float32,
    keep_activations: Callable[[Array], Array] | None = None,
    logits_from: int = 0,
    view: LayerView | None = None,
    hidden_of: tuple[int, ...] | None = None,
) -> ForwardResult:
    """Run one step over `tokens`, which see the masked slots of all sources and the masked tokens of the step itself.

    Args:
        params: as made by `init_params`.
        config: static.
        tokens: in any order, with any repetition of positions (a tree's siblings share one).
        step: where tokens are and what they see. Sources are caches of all layers, and sets of experts lead with an axis
            over the layers that have a router. In networks with linear attention tokens stand behind all those that they see.
        dtype: of activations.
        keep_activations: also return this function of the input of each matrix group, "batch token column", stacked over the
            layers that have it. A function that sums over tokens keeps memory small.
        logits_from: static; first token of the step whose logits are wanted; the number of tokens for none.
        view: how layers are read, if not as they are stored.
        hidden_of: static; also return the inputs of these layers, numbered from 0; the number of layers stands for what the
            last one puts out.
    Returns:
        logits, the KV written by this step (not merged into any source), activations or None, choices of experts or None.
    """
    chex.assert_rank([tokens, step.positions, step.mask], [2, 2, 3])
    chex.assert_equal_shape([tokens, step.positions])
    x = embed(tokens, step.positions, params, config, dtype)
    x, found = through_layers(
        x, params["layers"], config, step, keep_activations=keep_activations, view=view, hidden_of=hidden_of
    )
    return ForwardResult(
        logits=unembed(x[:, logits_from:], params, config, step.dot_dtype),
        cache=found.cache,
        hidden=x,
        activations=found.inputs if keep_activations else None,
        extras=None if found.choices is None else jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 2), found.choices),
        facts=found.facts,
        inner=found.hidden,
    )


def causal_mask(batch: int, num_tokens: int) -> Bool[Array, "batch token token"]:
    """Each token sees itself and all before it."""
    return jnp.broadcast_to(jnp.tril(jnp.ones((num_tokens, num_tokens), bool)), (batch, num_tokens, num_tokens))


def forward_text(params: Params, config: DecoderConfig, tokens: Int[Array, "batch token"], **options) -> ForwardResult:
    """`forward` over whole texts from position 0 with a causal mask and no cache; rotations are those of the whole text.

    Args:
        options: of `forward`, and fields of its step.
    """
    batch, num_tokens = tokens.shape
    positions = jnp.broadcast_to(jnp.arange(num_tokens), tokens.shape)
    given = {name: options.pop(name) for name in StepInput._fields if name in options}
    step = StepInput(positions, causal_mask(batch, num_tokens), lengths=jnp.full(tokens.shape, num_tokens))
    return forward(params, config, tokens, step._replace(**given), **options)
