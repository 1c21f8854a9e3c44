"""A draft head: one decoder layer that continues the target's hidden states, between the target's embedding and its LM head.

At place t it reads the token at t + 1 and the target's last hidden state at t (or its own prediction of it, where the target
has not been), and predicts the hidden state at t + 1; the target's own final norm and LM head read a distribution off it.

Heads of releases differ in what they read, norm and own: `HeadRule` says it, and the parameters that are there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
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
from jaxspec.models.kv_cache import CachedKV, KVCache
from jaxspec.models.matrix import Matrix, matrix_of, stack_of
from jaxspec.models.norms import NORMS
from jaxspec.models.special_tokens import head_of, unembed

__all__ = [
    "PLAIN_HEAD",
    "DraftHead",
    "HeadResult",
    "HeadRule",
    "TargetEnds",
    "abstract_head_params",
    "check_head_config",
    "head_forward",
    "head_logits",
    "head_states",
    "init_head_params",
    "target_ends",
]


@dataclasses.dataclass(frozen=True)
class HeadRule:
    """What a head computes beyond what its parameters say; the defaults are those of heads that are trained here.

    Parameters that a head may have: `embed_norm`, `hidden_norm` and `attention_norm` norm what enters; `embed` and `lm_head`
    are its own in place of the target's; `final_norm` likewise; `fc_bias`; `input_norm` norms what `fc` reads; `row_of` has for
    each token of the target its row of the head's own LM head, or a negative number.

    Attributes:
        hidden_of: layers of the target whose inputs it reads, side by side; None: what the last layer puts out.
        target_norm: kind and epsilon of the target's final norm, where what the last layer puts out is read behind it.
        norm: kind of the head's own norms.
        beside: token and state enter attention side by side, the state goes on as the residual, and `fc` makes the state of the
            target's hidden states. False: `fc` mixes token and state.
        residual_normed: the residual is the state behind its norm.
        state_first: `fc` reads the state before the token.
        blind_start: it reads zeros in place of the token at the first place of a text.
        norms_logits: the final norm is of the logits alone. False: the head goes on from the normed state, or has no such norm.
        rows: of an LM head of its own; None: the target's.
    """

    hidden_of: tuple[int, ...] | None = None
    target_norm: tuple[str, float] | None = None
    norm: str = "rms"
    beside: bool = False
    residual_normed: bool = False
    state_first: bool = False
    blind_start: bool = False
    norms_logits: bool = True
    rows: int | None = None


#: Of heads that are trained here.
PLAIN_HEAD = HeadRule()


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


def head_states(
    params: Params,
    config: DecoderConfig,
    rule: HeadRule,
    ends: TargetEnds,
    hidden: Float[Array, "batch place features"],
) -> Float[Array, "batch place hidden"]:
    """What a head reads of the target: its states in the place of which the head's own predictions come later.

    Args:
        hidden: the target's, as `hidden_of` of the rule says.
    """
    if rule.target_norm is not None:
        kind, eps = rule.target_norm
        hidden = NORMS[kind].apply(hidden, ends._asdict(), "final_norm", eps)
    if not rule.beside:
        return hidden
    return matrix_of(params["fc"]).dot(_normed(hidden, params, "input_norm", config, rule))


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
    rule: HeadRule = PLAIN_HEAD,
    **options: Any,
) -> HeadResult:
    """Run the head over some places, which see the masked slots of all sources and the masked places of the step itself.

    Args:
        params: as made by `init_head_params`, or of a release.
        config: static; of one layer, with the target's vocabulary.
        tokens: at place t, the token after the one that `hidden` belongs to.
        hidden: from `head_states`, or the head's own predictions; the head computes in its type.
        positions: of the hidden states' tokens.
        mask, sources: as for `forward`; caches have one layer.
        rule: static.
        options: `dot_dtype` and `frugal` of `forward`.
    Source: Li et al. 2024, EAGLE, arXiv:2401.15077, Section 4; training on its own predictions, several layers' states and
        token and state side by side: Li et al. 2025, EAGLE-3, arXiv:2503.01840; multi-token prediction: DeepSeek-V3,
        arXiv:2412.19437, Section 2.2; the same shape for long contexts: Yang et al. 2025, LongSpec, arXiv:2502.17421.
    Departs: of heads that are trained here, both inputs are normed before they are mixed, since the residual stream is many
        times longer than an embedding.
    """
    norm = lambda x, name: _normed(x, params, name, config, rule)
    token = stack_of(params.get("embed", ends.embed)).take(tokens).values().astype(hidden.dtype)
    if rule.blind_start:
        token = jnp.where(positions[..., None] == 0, 0, token)
    token, state = norm(token, "embed_norm"), norm(hidden, "hidden_norm")
    both = jnp.concatenate([state, token] if rule.state_first else [token, state], axis=-1)
    if rule.beside:
        x, attending = state if rule.residual_normed else hidden, both
    else:
        x = matrix_of(params["fc"]).dot(both, options.get("dot_dtype"))
        x = x + params["fc_bias"].astype(x.dtype)[None, None] if "fc_bias" in params else x
        attending = None if "attention_norm" in params["layers"] else x
    seen = [KVSource(source.cache.key[0], source.cache.value[0], source.mask) for source in sources]
    result = decoder_layer(
        x,
        only_layer(params["layers"]),
        config,
        config.blocks(0),
        StepInput(positions, mask, seen, **options),
        attending,
    )
    output = result.output if rule.norms_logits else norm(result.output, "final_norm")
    return HeadResult(hidden=output, cache=jax.tree.map(lambda leaf: leaf[None], KVCache(*result.written)))


def head_logits(
    hidden: Float[Array, "*b hidden"],
    ends: TargetEnds,
    config: DecoderConfig,
    dot_dtype: Any = None,
    *,
    params: Mapping[str, Any] | None = None,
    rule: HeadRule = PLAIN_HEAD,
) -> Float[Array, "*b vocab"]:
    """What the target would say after a token with this hidden state.

    Args:
        params: of the head, where it has a final norm or an LM head of its own.
    """
    own = params or {}
    read = {**ends._asdict(), **{name: own[name] for name in ("final_norm", "lm_head") if name in own}}
    # A tied head is in `lm_head` already, whatever the head's own shape says of ties.
    untied = dataclasses.replace(config, tie_embeddings=False)
    logits = unembed(hidden, read, untied, dot_dtype) if rule.norms_logits else stack_of(read["lm_head"]).dot(hidden)
    if "row_of" not in own:
        return logits
    # Tokens that the head does not know are never drafted.
    row = own["row_of"]
    return jnp.where(row < 0, jnp.finfo(logits.dtype).min, jnp.take(logits, jnp.maximum(row, 0), axis=-1))


def _normed(x: Array, params: Mapping[str, Any], name: str, config: DecoderConfig, rule: HeadRule) -> Array:
    return NORMS[rule.norm].apply(x, params, name, config.norm_eps) if name in params else x
