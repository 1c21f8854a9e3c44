"""Counts of tiles, and the time of the best tiling, as models of GPU kernels need them."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp

from hwmodels.numerics.fast_compile import in_small_program
from hwmodels.numerics.scalars import Leaf

__all__ = ["Ceiling", "exact_ceiling", "of_tilings", "soft_minimum", "tile_counts"]

#: Tiles that cover an extent, given the extent and the tile.
Ceiling: TypeAlias = Callable[[Leaf, Leaf], Leaf]


def exact_ceiling(one: Leaf, other: Leaf) -> Leaf:
    """Tiles that cover an extent; constant to the gradient, as ceil is."""
    count = jnp.ceil(one / other)
    # XLA multiplies by the inverse of a constant, which may come out just above a whole number.
    return jnp.where((count - 1.0) * other >= one, count - 1.0, count)


def tile_counts(ceiling: Ceiling, extent: Leaf, tiles: Sequence[float]) -> list[tuple[Leaf, Leaf]]:
    """Each tile and how many of it cover an extent."""
    if not in_small_program():
        return [(tile, ceiling(extent, tile)) for tile in tiles]
    return list(zip(tiles, jnp.unstack(jax.vmap(lambda tile: ceiling(extent, tile))(jnp.asarray(tiles))), strict=True))


def of_tilings(time: Callable[..., Leaf], *choices: Sequence[tuple[Leaf, ...]]) -> list[Leaf]:
    """A time of every combination of choices, such as rows and columns of a tile.

    Loops over the tilings, not an axis: the compiler makes one vectorised pass over the batch of it. In a small program
    they are mapped over.

    Args:
        time: of one of each choice.
    """
    if not in_small_program():
        return [time(*tiling) for tiling in itertools.product(*choices)]
    mapped = time
    for place in range(len(choices)):
        mapped = jax.vmap(mapped, [0 if axis == place else None for axis in range(len(choices))])
    stacked = [
        tuple(jnp.stack(jnp.broadcast_arrays(*map(jnp.asarray, part))) for part in zip(*choice, strict=True))
        for choice in choices
    ]
    times = mapped(*stacked)
    return list(jnp.unstack(times.reshape(-1, *times.shape[len(choices) :])))


def soft_minimum(times: Sequence[Leaf]) -> Leaf:
    """(sum of t^-16)^(-1/16): libraries choose well but not perfectly; 24 equal times give 0.82 of one.

    A sixteenth power is four squarings, and its root four square roots.
    """
    return _soft_minimum(tuple(jnp.broadcast_arrays(*times)))


@jax.custom_jvp
def _soft_minimum(times: tuple[Leaf, ...]) -> Leaf:
    return _with_slopes(times)[0]


@_soft_minimum.defjvp
def _by_shares(primals: tuple[tuple[Leaf, ...]], tangents: tuple[tuple[Leaf, ...]]) -> tuple[Leaf, Leaf]:
    """The slope from the powers that the minimum needed anyway: the root of sums of squarings is not differentiated."""
    value, slopes = _with_slopes(primals[0])
    return value, functools.reduce(operator.add, map(operator.mul, slopes, tangents[0]))


def _with_slopes(times: tuple[Leaf, ...]) -> tuple[Leaf, list[Leaf]]:
    """The soft minimum and its slope by each time: (minimum / t)^17."""
    least = functools.reduce(jnp.minimum, times)
    shares = [least / time for time in times]
    powers = [jax.lax.integer_pow(share, 16) for share in shares]
    total = functools.reduce(operator.add, powers)
    root = total
    for _ in range(4):
        root = jnp.sqrt(root)
    # Of t_i: minimum * power_i / total / t_i, in which least / t_i is known.
    rest = 1.0 / (root * total)
    return least / root, [power * share * rest for power, share in zip(powers, shares, strict=True)]
