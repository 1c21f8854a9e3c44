"""Rotary position embeddings: queries and keys turned by angles that grow with the position."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

__all__ = [
    "SCALINGS",
    "DynamicScaling",
    "LinearScaling",
    "Llama3Scaling",
    "LongRopeScaling",
    "Rope",
    "RopeScaling",
    "YarnScaling",
    "chosen_rope",
    "plain_frequencies",
    "rotate",
    "text_lengths",
]

# Frequencies of rotary embeddings, plain and scaled for longer texts than those of the training, as transformers does it.

#: Angular frequency of each plane, radians per position; one for all tokens, or one for each.
Frequencies = np.ndarray | Float[Array, "*b plane"]


class RopeScaling(Protocol):
    """How the frequencies of a network depart from the plain ones.

    Attributes:
        kind: as `rope_type` of config.json calls it.
        attention_factor: by which cosines and sines are multiplied.
    """

    kind: ClassVar[str]

    @property
    def attention_factor(self) -> float:
        """See above."""
        ...

    def frequencies(self, theta: float, rotary_dim: int, lengths: Int[Array, "*b"]) -> Frequencies:
        """Frequencies of the planes.

        Args:
            lengths: tokens of the text that each token belongs to, as far as the rule asks for it.
        """
        ...


def plain_frequencies(theta: float, rotary_dim: int) -> np.ndarray:
    """theta^(-2i / rotary_dim) of plane i, float32.

    Source: Su et al. 2021, arXiv:2104.09864.
    """
    exponent = np.arange(0, rotary_dim, 2, dtype=np.float32) / np.float32(rotary_dim)
    return (1.0 / np.float32(theta) ** exponent).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class LinearScaling:
    """All frequencies divided by one factor.

    Source: Chen et al. 2023, arXiv:2306.15595; `rope_type = "linear"`.
    """

    factor: float
    kind: ClassVar[str] = "linear"

    @property
    def attention_factor(self) -> float:
        """See `RopeScaling`."""
        return 1.0

    def frequencies(self, theta: float, rotary_dim: int, lengths: Int[Array, "*b"]) -> Frequencies:
        """See `RopeScaling`."""
        del lengths
        return (plain_frequencies(theta, rotary_dim) / np.float32(self.factor)).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class Llama3Scaling:
    """Long wavelengths divided by `factor`, short ones kept, a linear blend between.

    Source: `rope_type = "llama3"` of the Llama 3.1 release (config.json keys of the same names).
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int
    kind: ClassVar[str] = "llama3"

    @property
    def attention_factor(self) -> float:
        """See `RopeScaling`."""
        return 1.0

    def frequencies(self, theta: float, rotary_dim: int, lengths: Int[Array, "*b"]) -> Frequencies:
        """See `RopeScaling`."""
        del lengths
        frequency = plain_frequencies(theta, rotary_dim)
        wavelength = 2 * math.pi / frequency
        context = self.original_max_position_embeddings
        blend = (context / wavelength - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        blend = np.clip(blend, 0.0, 1.0)
        return ((1 - blend) * frequency / self.factor + blend * frequency).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class DynamicScaling:
    """A base that grows with the text, once it is longer than `max_position_embeddings`.

    Source: `rope_type = "dynamic"` ("NTK-aware" scaling).
    """

    factor: float
    max_position_embeddings: int
    kind: ClassVar[str] = "dynamic"

    @property
    def attention_factor(self) -> float:
        """See `RopeScaling`."""
        return 1.0

    def frequencies(self, theta: float, rotary_dim: int, lengths: Int[Array, "*b"]) -> Frequencies:
        """See `RopeScaling`."""
        trained = self.max_position_embeddings
        length = jnp.maximum(lengths, trained).astype(jnp.float32)
        growth = self.factor * length / trained - (self.factor - 1)
        base = theta * growth ** (rotary_dim / (rotary_dim - 2))
        exponent = np.arange(0, rotary_dim, 2, dtype=np.float32) / np.float32(rotary_dim)
        return 1.0 / base[..., None] ** jax.lax.broadcast_to_rank(exponent, base.ndim + 1)


@dataclasses.dataclass(frozen=True)
class YarnScaling:
    """Planes of few turns within the original context divided by `factor`, those of many kept, a linear ramp between.

    Attributes:
        attention_factor: as stated or derived from the factor, resolved.
        beta_fast, beta_slow: turns from which a plane is kept, and below which it is divided.
        truncate: whether the ends of the ramp are whole planes.
        score_mscale: scores of attention are also multiplied by the square of 0.1 score_mscale ln(factor) + 1 (DeepSeek-V2);
            0: they are not.
    Source: Peng et al. 2023, arXiv:2309.00071, Sections 3.2 and 3.4; `rope_type = "yarn"`.
    """

    factor: float
    original_max_position_embeddings: int
    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    score_mscale: float = 0.0
    kind: ClassVar[str] = "yarn"

    def frequencies(self, theta: float, rotary_dim: int, lengths: Int[Array, "*b"]) -> Frequencies:
        """See `RopeScaling`."""
        del lengths

        def plane_of(turns: float) -> float:
            context = self.original_max_position_embeddings
            return rotary_dim * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(theta))

        low, high = plane_of(self.beta_fast), plane_of(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, rotary_dim - 1)
        span = high - low if high != low else 0.001  # the release's own way out of a division by 0
        ramp = np.clip((np.arange(rotary_dim // 2, dtype=np.float32) - low) / span, 0, 1)
        kept = plain_frequencies(theta, rotary_dim)
        return (kept / self.factor * ramp + kept * (1 - ramp)).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class LongRopeScaling:
    """A divisor for each plane: one set for texts within the original context, another one for longer texts.

    Attributes:
        attention_factor: as stated or derived from the factor, resolved.
    Source: Ding et al. 2024, arXiv:2402.13753; `rope_type = "longrope"` of the Phi-3 release.
    """

    short_factor: tuple[float, ...]
    long_factor: tuple[float, ...]
    original_max_position_embeddings: int
    attention_factor: float
    kind: ClassVar[str] = "longrope"

    def frequencies(self, theta: float, rotary_dim: int, lengths: Int[Array, "*b"]) -> Frequencies:
        """See `RopeScaling`."""
        plain = plain_frequencies(theta, rotary_dim)
        short, long = (plain / np.asarray(part, np.float32) for part in (self.short_factor, self.long_factor))
        short, long = (jax.lax.broadcast_to_rank(part, lengths.ndim + 1) for part in (short, long))
        return jnp.where((lengths > self.original_max_position_embeddings)[..., None], long, short)


#: Kind of scaling -> its class, whose fields are the values of a `RopeSpec`.
SCALINGS: dict[str, Callable[..., RopeScaling]] = {
    scaling.kind: scaling for scaling in (LinearScaling, Llama3Scaling, DynamicScaling, YarnScaling, LongRopeScaling)
}


@dataclasses.dataclass(frozen=True)
class Rope:
    """The rotation of a layer's queries and keys: its base, and how its frequencies are scaled."""

    theta: float = 10_000.0
    scaling: RopeScaling | None = None

    @property
    def attention_factor(self) -> float:
        """By which cosines and sines are multiplied."""
        return 1.0 if self.scaling is None else self.scaling.attention_factor

    def frequencies(self, rotary_dim: int, lengths: Int[Array, "*b"]) -> Frequencies:
        """See `RopeScaling`."""
        if self.scaling is None:
            return plain_frequencies(self.theta, rotary_dim)
        return self.scaling.frequencies(self.theta, rotary_dim, lengths)


def chosen_rope(
    ropes: Sequence[Rope | None], rotary_dim: int, lengths: Int[Array, "*b token"], choice: Int[Array, ""] | None
) -> tuple[np.ndarray | Float[Array, "*frequency"], float | Float[Array, ""] | None]:
    """Frequencies of the planes and the factor of cosines and sines, of the rotation that a layer has.

    Args:
        ropes: all rotations of the network; None turns nothing: its frequencies are 0.
        lengths: tokens of the text that each token belongs to.
        choice: the layer's, by its place among them, so that layers of different rotations are one program; None: the first.
    Returns:
        "plane" or "*b token plane"; a scalar, or None for 1.
    """
    still = np.zeros((rotary_dim + 1) // 2, np.float32)
    found = [still if rope is None else rope.frequencies(rotary_dim, lengths) for rope in ropes]
    factors = [1.0 if rope is None else rope.attention_factor for rope in ropes]
    if choice is None:
        return found[0], None if factors[0] == 1 else factors[0]
    factor = None if set(factors) == {1.0} else jnp.asarray(factors, jnp.float32)[choice]
    return jnp.stack(jnp.broadcast_arrays(*found))[choice], factor


def text_lengths(positions: Int[Array, "batch token"], prompt: Int[Array, "#batch"]) -> Int[Array, "batch token"]:
    """Tokens of the text that each token is rotated for where the prompt is processed at once and what follows token by token:
    all of the prompt's for its own, those up to itself for each that follows.

    Args:
        prompt: tokens of each prompt.
    """
    return jnp.maximum(positions + 1, prompt[:, None])


def rotate(
    x: Float[Array, "*b token head head_dim"],
    positions: Int[Array, "*b token"],
    frequency: np.ndarray | Float[Array, "*frequency"],
    *,
    factor: float | Float[Array, ""] | None = None,
    interleaved: bool = False,
) -> Float[Array, "*b token head head_dim"]:
    """Rotate planes of each head by position times frequency; elements beyond those of the planes are kept.

    Args:
        frequency: "plane", radians per position; or "*b token plane", for each token.
        factor: of cosines and sines; None: 1.
        interleaved: plane i is elements (2i, 2i + 1) rather than (i, i + planes).
    """
    angle = positions[..., None].astype(jnp.float32) * jax.lax.broadcast_to_rank(frequency, positions.ndim + 1)
    cos, sin = jnp.cos(angle)[..., None, :], jnp.sin(angle)[..., None, :]
    if factor is not None:
        cos, sin = factor * cos, factor * sin
    cos, sin = cos.astype(x.dtype), sin.astype(x.dtype)
    size = 2 * frequency.shape[-1]
    if size < x.shape[-1]:
        return jnp.concatenate([_turned(x[..., :size], cos, sin, interleaved), x[..., size:]], axis=-1)
    return _turned(x, cos, sin, interleaved)


def _turned(x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    if interleaved:
        low, high = x[..., 0::2], x[..., 1::2]
        return jnp.stack([low * cos - high * sin, high * cos + low * sin], axis=-1).reshape(x.shape)
    low, high = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)
