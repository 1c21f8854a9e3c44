"""Bit fields that are stored as they are, gathered into planes; and a tensor put together from its fields and planes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.formats import bit_packing, fields

__all__ = ["Plane", "field", "merge_fields", "packed_plane", "plane_form", "planes_of"]


class Plane(NamedTuple):
    """Neighbouring fields that are stored as they are, together: at most 16 bits."""

    role: str
    fields: tuple[int, ...]
    width: int


def planes_of(widths: tuple[int, ...], coded: Iterable[int]) -> list[Plane]:
    """The fields that are not coded, gathered into planes."""
    groups: list[list[int]] = []
    for index in sorted(set(range(len(widths))) - set(coded)):
        if groups and sum(widths[i] for i in groups[-1]) + widths[index] <= 16:
            groups[-1].append(index)
        else:
            groups.append([index])
    return [Plane(f"plane{i}", tuple(g), sum(widths[j] for j in g)) for i, g in enumerate(groups)]


@partial(jax.jit, static_argnums=(1, 2))
def field(patterns: jax.Array, widths: tuple[int, ...], index: int) -> jax.Array:
    """One field of each pattern."""
    return fields.split(patterns, widths)[index]


def _joined(patterns: jax.Array, widths: tuple[int, ...], plane: Plane) -> jax.Array:
    parts = fields.split(patterns, widths)
    joined = jnp.zeros(patterns.shape, jnp.uint16)
    for index in plane.fields:
        joined = (joined << widths[index]) | parts[index].astype(jnp.uint16)
    return joined


@partial(jax.jit, static_argnums=(1, 2))
def packed_plane(patterns: jax.Array, widths: tuple[int, ...], plane: Plane) -> jax.Array:
    """A plane as it is stored: bytes and 16-bit numbers in order, other widths packed."""
    joined = _joined(patterns, widths, plane)
    if plane.width in (8, 16):
        return joined.astype(jnp.uint8 if plane.width == 8 else jnp.uint16)
    return bit_packing.pack(joined, width=plane.width)


def plane_form(plane: Plane, count: int) -> tuple[np.dtype, int]:
    """Dtype and number of items of a stored plane of `count` elements."""
    if plane.width in (8, 16):
        return np.dtype(f"<u{plane.width // 8}"), count
    return np.dtype("<u4"), bit_packing.num_words(count, plane.width)


@partial(jax.jit, static_argnums=(2, 3, 4))
def merge_fields(
    values: dict[int, jax.Array],
    packed: dict[str, jax.Array],
    widths: tuple[int, ...],
    planes: tuple[Plane, ...],
    n: int,
) -> jax.Array:
    """Patterns of n elements, from values of some fields and the planes that hold the others."""
    parts = dict(values)
    for plane in planes:
        content = packed[plane.role]
        joined = content if plane.width in (8, 16) else bit_packing.unpack(content, width=plane.width, count=n)
        for index in reversed(plane.fields):
            parts[index] = joined & joined.dtype.type((1 << widths[index]) - 1)
            joined = joined >> joined.dtype.type(widths[index]) if widths[index] < joined.dtype.itemsize * 8 else joined
    return fields.merge([parts[index] for index in range(len(widths))], widths)
