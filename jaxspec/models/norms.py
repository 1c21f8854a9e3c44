"""Normalisation of hidden states: kinds of norm, each with the vectors that it has and what it computes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array

__all__ = ["ACTIVATIONS", "NORMS", "XIELU", "LayerNorm", "Norm", "RmsNorm", "rms_norm", "xielu"]

# Activations of feed-forward networks, by the names that `hwmodels.networks.ACTIVATION_NAMES` makes of those of files.

#: Name -> function of each element.
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "silu": jax.nn.silu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_pytorch_tanh": partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "relu2": lambda x: jax.nn.relu(x) ** 2,
}


def _wide(x: Array) -> Array:
    return x.astype(jnp.float64 if x.dtype == jnp.float64 else jnp.float32)


#: Name -> shape and initial value of the numbers of `xielu` in one layer.
XIELU: dict[str, tuple[int | tuple[int, ...], float]] = {
    **{"xielu_alpha_p": ((1,), math.log(math.expm1(0.8))), "xielu_alpha_n": ((1,), math.log(math.expm1(0.3)))},
    **{"xielu_beta": ((), 0.5), "xielu_eps": ((), -1e-6)},
}


def xielu(x: Array, weights: Mapping[str, Array]) -> Array:
    """Apertus's activation: a x^2 + b x above 0, and a' (e^min(x, eps) - 1 - x) + b x elsewhere, in float32 or wider.

    With a = softplus(alpha_p), a' = b + softplus(alpha_n) and b = beta; at 0 its slope is b up to eps.

    Args:
        weights: of one layer, with the names of `XIELU`.
    Source: Huang and Schlag 2024, arXiv:2411.13010, Section 3; `eps` as in transformers, activations.py.
    """
    wide = _wide(x)
    positive, negative, beta, eps = (jax.lax.broadcast_to_rank(_wide(weights[name]), x.ndim) for name in XIELU)
    above = jax.nn.softplus(positive) * wide * wide
    below = (beta + jax.nn.softplus(negative)) * (jnp.expm1(jnp.minimum(wide, eps)) - wide)
    return (jnp.where(wide > 0, above, below) + beta * wide).astype(x.dtype)


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """Root-mean-square normalisation over the last axis, in float32 or wider (Zhang and Sennrich 2019)."""
    wide = _wide(x)
    scale = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + eps)
    return (wide * scale).astype(x.dtype) * jax.lax.broadcast_to_rank(weight.astype(x.dtype), x.ndim)


class Norm(Protocol):
    """A kind of norm, which finds its vectors under the norm's name in a layer's parameters."""

    def vectors(self, name: str) -> dict[str, float]:
        """Name -> initial value of the vectors of a norm called `name`, all as long as what it norms."""
        ...

    def apply(self, x: Array, weights: Mapping[str, Array], name: str, eps: float) -> Array:
        """Norm over the last axis, in float32 or wider; the result has the type of `x`."""
        ...


@dataclasses.dataclass(frozen=True)
class RmsNorm:
    """Root-mean-square norm.

    Attributes:
        shift: added to the stored scales: 1 in Gemma's networks, whose checkpoints store the difference from 1.
    """

    shift: float = 0.0

    def vectors(self, name: str) -> dict[str, float]:
        """See `Norm`."""
        return {name: 1.0 - self.shift}

    def apply(self, x: Array, weights: Mapping[str, Array], name: str, eps: float) -> Array:
        """See `Norm`."""
        if not self.shift:
            return rms_norm(x, weights[name], eps)
        return rms_norm(_wide(x), self.shift + _wide(weights[name]), eps).astype(x.dtype)


@dataclasses.dataclass(frozen=True)
class LayerNorm:
    """Mean and variance removed, then scales and biases (Ba et al. 2016, arXiv:1607.06450).

    Attributes:
        biased: whether there are biases.
    """

    biased: bool = True

    def vectors(self, name: str) -> dict[str, float]:
        """See `Norm`."""
        return {name: 1.0} | ({f"{name}_bias": 0.0} if self.biased else {})

    def apply(self, x: Array, weights: Mapping[str, Array], name: str, eps: float) -> Array:
        """See `Norm`."""
        wide = _wide(x)
        centred = wide - jnp.mean(wide, axis=-1, keepdims=True)
        scale = jax.lax.rsqrt(jnp.mean(centred * centred, axis=-1, keepdims=True) + eps)
        gain, *bias = (jax.lax.broadcast_to_rank(_wide(weights[part]), x.ndim) for part in self.vectors(name))
        return sum(bias, centred * scale * gain).astype(x.dtype)


#: `DecoderSizes.norm` -> kind of norm.
NORMS: dict[str, Norm] = {
    **{"rms": RmsNorm(), "shifted_rms": RmsNorm(shift=1.0)},
    **{"layer": LayerNorm(), "unbiased_layer": LayerNorm(biased=False)},
}
