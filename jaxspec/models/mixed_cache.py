"""One cache for layers that keep different things of a token: each has its own part of a slot, and zeros behind it.

Keys and values of attention lie in such a cache as in any other, with room behind each head's key. Linear attention has the
same room as one long column, and no values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxspec.models.blocks.interface import CachedShape

__all__ = ["MixedLayers", "common_shape", "own_part", "whole_slot"]


@dataclasses.dataclass(frozen=True)
class MixedLayers:
    """What the layers of a cache hold where some have linear attention.

    Attributes:
        attention: of a token, in the layers that attend; None: none does.
        linear: of each layer, whether it has linear attention; what it holds is never rounded.
    """

    attention: CachedShape | None
    linear: tuple[bool, ...]

    @property
    def attending(self) -> list[int]:
        """Numbers of the layers that attend."""
        return [layer for layer, linear in enumerate(self.linear) if not linear]


def common_shape(shapes: Iterable[CachedShape]) -> CachedShape:
    """A shape with room for what any of the layers keeps.

    Raises:
        ValueError: layers with values differ in their shape.
    """
    shapes = set(shapes)
    valued = {shape for shape in shapes if shape.value_dim} or shapes
    if len(valued) > 1:
        raise ValueError("the layers differ in what they cache per token; all must cache keys of one shape")
    (base,) = valued
    rows = max(shape.heads * shape.key_dim for shape in shapes)
    return base._replace(key_dim=-(-rows // base.heads))


def own_part(
    key: Float[Array, "batch head key_dim slot"], value: Float[Array, "batch head slot value_dim"], own: CachedShape
) -> tuple[Array, Array]:
    """Of the slots of one layer, what a layer of a shape keeps in them."""
    batch, heads, key_dim, slots = key.shape
    if heads == own.heads:
        return key[:, :, : own.key_dim], value[..., : own.value_dim]
    flat = key.reshape(batch, 1, heads * key_dim, slots)[:, :, : own.heads * own.key_dim]
    return flat.reshape(batch, own.heads, own.key_dim, slots), value[:, : own.heads, :, : own.value_dim]


def whole_slot(
    key: Float[Array, "batch head key_dim slot"], value: Float[Array, "batch head slot value_dim"], common: CachedShape
) -> tuple[Array, Array]:
    """Inverse of `own_part`, with zeros in what a layer of another shape keeps; in float32, or in a wider type that comes."""
    batch, heads, key_dim, slots = key.shape
    wide = jnp.float64 if key.dtype == jnp.float64 else jnp.float32
    filled = lambda array, axis, size: jnp.pad(
        array, [(0, size - array.shape[axis] if place == axis else 0) for place in range(array.ndim)]
    )
    if heads == common.heads:
        key = filled(key, 2, common.key_dim)
    else:
        flat = filled(key.reshape(batch, heads * key_dim, slots), 1, common.heads * common.key_dim)
        key = flat.reshape(batch, common.heads, common.key_dim, slots)
    value = filled(filled(value, 1, common.heads), 3, common.value_dim)
    return key.astype(wide), value.astype(wide)
