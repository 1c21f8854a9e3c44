"""What must be held, and the longest context that a memory holds."""

from __future__ import annotations

from collections.abc import Mapping

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.network.architecture import (
    KINDS,
    Architecture,
    cached_rows,
    cached_window_share,
    dense_layers,
    kv_elements_per_token,
    parameters,
    state_bytes,
)
from hwmodels.numerics.fields import AMOUNT, NOT_NEGATIVE, POSITIVE, check_number
from hwmodels.numerics.scalars import Number, as_float
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = ["HeldBytes", "activation_buffer_bytes", "held_bytes", "longest_context"]


@flax.struct.dataclass
class HeldBytes:
    """Bytes by what they are, "*b"."""

    weights: Float[Array, "*b"]
    kv: Float[Array, "*b"]

    @property
    def total(self) -> Float[Array, "*b"]:
        """Weights and KV together."""
        return self.weights + self.kv


def held_bytes(
    architecture: Architecture,
    *,
    batch: Number,
    context_tokens: Number,
    weight_bits: Mapping[str, Number],
    kv_bits: Number,
    shared_tokens: Number = 0.0,
) -> HeldBytes:
    """Bytes of weights, and of the KV cache and linear attention's states of all sequences.

    Activations, a few rows, are left out: `activation_buffer_bytes`.

    Args:
        architecture: leaves "*b".
        batch, context_tokens: "*b", >= 0.
        weight_bits: kind -> "*b"; bits held per stored weight.
        kv_bits: "*b", bits held per cached element.
        shared_tokens: "*b", in [0, context_tokens]; of the context, that all sequences have in common.
    Raises:
        ValueError: a number that is negative or not finite.
    """
    numbers = {"batch": batch, "context_tokens": context_tokens, "kv_bits": kv_bits, "shared_tokens": shared_tokens}
    for name, value in (numbers | {"weight_bits": weight_bits}).items():
        check_number(name, value, NOT_NEGATIVE)
    weights = _weight_bytes(architecture, weight_bits)
    token_bytes = kv_elements_per_token(architecture) * as_float(kv_bits) / BITS_PER_BYTE
    rows = cached_rows(architecture, context_tokens, batch=batch, shared_tokens=shared_tokens)
    states = state_bytes(architecture) * as_float(batch)
    return HeldBytes(weights=jnp.asarray(weights), kv=jnp.asarray(token_bytes * rows + states))


def activation_buffer_bytes(
    architecture: Architecture, *, tokens: Number, element_bytes: Number = 2.0
) -> Float[Array, "*b"]:
    """Bytes of the activations of `tokens` tokens that an engine holds at once, where a layer holds most: its gated product.

    Both inputs of the product (one without a gate), the residual stream and its normalised copy. Logits are not among them.

    Args:
        architecture: leaves "*b"; of its dense layers, or of the experts that a token chooses if it has none.
        tokens: "*b", >= 0; that are processed together.
        element_bytes: "*b", > 0.
    """
    a = jax.tree.map(as_float, architecture)
    experts = a.experts_per_token * a.expert_intermediate_size + a.shared_intermediate_size
    dense = dense_layers(a) > 0
    inner = jnp.maximum(jnp.where(dense, a.intermediate_size, 0.0), experts)
    elements = (1.0 + a.gated_ffn) * inner + 2.0 * a.hidden_size
    return as_float(tokens) * as_float(element_bytes) * elements


def longest_context(
    architecture: Architecture,
    *,
    budget_bytes: Number,
    batch: Number,
    weight_bits: Mapping[str, Number],
    kv_bits: Number,
) -> Float[Array, "*b"]:
    """Tokens per sequence whose KV fits beside the weights: the inverse of `held_bytes`.

    Args:
        budget_bytes: "*b", > 0.
        batch: "*b", > 0; the rest as `held_bytes` takes it.
    Returns:
        "*b", >= 0, a real number; 0 where the weights alone do not fit, infinite where every layer has a full window.
    Raises:
        ValueError: a number that is not positive.
    Gradient: kinks where the windows fill and where the weights just fit.
    """
    check_number("budget_bytes", budget_bytes, POSITIVE)
    check_number("batch", batch, AMOUNT)
    a = jax.tree.map(as_float, architecture)
    room = jnp.asarray(as_float(budget_bytes) - _weight_bytes(a, weight_bits) - state_bytes(a) * as_float(batch))
    token_bytes = as_float(batch) * kv_elements_per_token(a) * as_float(kv_bits) / BITS_PER_BYTE
    tokens = jnp.maximum(room, 0.0) / token_bytes  # of a cache without windows
    window = jnp.asarray(a.window_tokens + a.sink_tokens)
    share = jnp.asarray(cached_window_share(a))
    endless = share >= 1.0
    beyond = (tokens - share * window) / jnp.where(endless, 1.0, 1.0 - share)
    beyond = jnp.where(endless, jnp.inf, beyond)
    return jnp.where((share > 0) & (tokens > window), beyond, tokens)


def _weight_bytes(architecture: Architecture, weight_bits: Mapping[str, Number]) -> Number:
    stored = parameters(architecture)
    return sum(stored[kind] * as_float(weight_bits[kind]) for kind in KINDS) / BITS_PER_BYTE
