"""Counts of tiles, and the time of the best tiling, as models of GPU kernels need them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.compute.roofline import ROOFLINE
from hwmodels.compute.unit import UnitTimes
from hwmodels.device import Device
from hwmodels.network.operators.work import OPERATORS, MatrixShapes, OperatorWork
from hwmodels.numerics.fast_compile import in_small_program
from hwmodels.numerics.scalars import Leaf, select, with_last_axis

__all__ = [
    "Ceiling",
    "at_one_depth",
    "exact_ceiling",
    "of_tilings",
    "products_of",
    "soft_minimum",
    "tile_counts",
    "with_products",
]

# From one product of matrices to operators: products as a unit has them, everything else at the roofline.

_IS_ATTENTION = np.array([name == "attention" for name in OPERATORS])


def products_of(work: OperatorWork) -> MatrixShapes:
    """Shapes of the products of each operator, "... operator".

    Raises:
        ValueError: the work does not say.
    """
    if work.shapes is None:
        raise ValueError(
            "the work has no shapes, which a device with a matrix unit needs; build it with step_operators"
        )
    return work.shapes


def at_one_depth(work: OperatorWork) -> MatrixShapes:
    """`products_of` for units that round sizes up to whole blocks: attention at the depth of what is cached.

    Expanding latents counts as depth, spread over the new tokens. It would fall as they become more, and a whole block less
    would make more tokens faster. Here it counts as rows, in as many FLOPs; without latents nothing changes.
    """
    shapes = products_of(work)
    if work.attention is None:
        return shapes
    depth = with_last_axis(work.attention.depth)
    other = _IS_ATTENTION & (shapes.k != depth)
    m = select(other, shapes.m * shapes.k / depth, shapes.m)
    return dataclasses.replace(shapes, m=m, k=select(other, depth, shapes.k))


def with_products(
    work: OperatorWork,
    device: Device,
    *,
    product_s: Float[Array, "... operator"],
    product_j: Float[Array, "... operator"] | None = None,
) -> UnitTimes:
    """Times of operators of which a unit knows one product each.

    Args:
        work: "*b operator".
        device: leaves "*b".
        product_s: of the arithmetic of one product.
        product_j: of one product, its on-chip traffic included; None: the chip's energy per FLOP.
    """
    shapes, roof = products_of(work), ROOFLINE.operator_times(work, device)
    multiplies, count = shapes.products > 0, shapes.products * work.launches
    energy_j = roof.energy_j
    if energy_j is not None and product_j is not None:
        energy_j = jnp.where(multiplies, product_j * count, energy_j)
    compute_s = jnp.where(multiplies, product_s * count, roof.compute_s)
    return dataclasses.replace(roof, compute_s=compute_s, energy_j=energy_j)


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
