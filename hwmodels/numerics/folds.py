"""Folds: how many tiles cover an extent, exactly on the host and smoothly under a gradient.

Between two multiples of the tile the exact number is flat, so its gradient says nothing. The smooth one lies between the
quotient and the exact number, meets both at every multiple, and there has the quotient's slope: the mean slope of the steps.
"""

from __future__ import annotations

from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.core import Tracer
from jaxtyping import Array, Float

from hwmodels.numerics.scalars import Number, as_arrays

__all__ = ["Whole", "as_whole", "ceil_div", "settled", "smooth_ceil_div", "smooth_folds"]

#: An exact count on the host: a Python integer, or an int64 array for a batch.
Whole: TypeAlias = int | npt.NDArray[np.int64]


def as_whole(value: Number, name: str) -> Whole:
    """The same number as an exact integer on the host.

    Args:
        value: "*b", whole numbers >= 1 of any numeric type: 128.0 is one.
        name: what the number is, for the error.
    Returns:
        "*b"; a Python integer for a single number, int64 for an array.
    Raises:
        ValueError: a number is traced, not whole, or below 1.
    """
    if isinstance(value, Tracer):
        raise ValueError(f"{name} is traced, but exact counts need known numbers; under jit use the smooth function")
    if isinstance(value, int) and value >= 1:
        return int(value)
    array = np.asarray(value, np.float64 if isinstance(value, float) else None)
    if not (np.all(np.isfinite(array)) and np.all(array >= 1) and np.all(array == np.floor(array))):
        raise ValueError(f"{name} is {value}; exact counts take whole numbers >= 1; for others use the smooth function")
    return int(array) if array.ndim == 0 else array.astype(np.int64)


def ceil_div(numerator: Number, denominator: Number) -> Whole:
    """Exact number of tiles that cover an extent.

    Args:
        numerator: "*b", whole >= 1; the extent.
        denominator: "*b", whole >= 1; the tile.
    Returns:
        "*b", whole >= 1; a Python integer where both are single numbers, int64 otherwise.
    Raises:
        ValueError: a number is traced, not whole, or below 1.
    """
    return -(-as_whole(numerator, "numerator") // as_whole(denominator, "denominator"))


#: Rounding steps by which a computed number may miss the whole number that it stands for.
_ROUNDINGS = 16


def settled(value: Number) -> Float[Array, "*b"]:
    """A computed count, "*b", set to the whole number from which rounding alone keeps it: a last digit is no further tile.

    Gradient: 1; the function departs from the identity by 16 rounding steps of its precision at most.
    """
    number = jnp.asarray(value)
    whole = jnp.round(number)
    near = jnp.abs(number - whole) <= _ROUNDINGS * jnp.finfo(number.dtype).eps * whole
    return number + jax.lax.stop_gradient(jnp.where(near, whole - number, 0.0))


def smooth_ceil_div(numerator: Number, denominator: Number, temperature: Number = 0.0) -> Float[Array, "*b"]:
    """Number of tiles that cover an extent, relaxed from steps (temperature 0) towards the quotient (1).

    With x = numerator / denominator, u = x - (ceil(x) - 1) in (0, 1] and w = 1 - u:

        ceil(x) - w (1 - (1 - temperature) u^2 / (u^2 + temperature^2) * w / (w + temperature))   for x > 1,
        1 - w temperature / (w + temperature)                                                     for x <= 1.

    Args:
        numerator: "*b", > 0, real; the extent.
        denominator: "*b", > 0, real; the tile, in the same unit.
        temperature: "*b" or one number, in [0, 1]. May be traced.
    Returns:
        "*b", in [x, ceil(x)], increasing in x, decreasing in the temperature. Equal to ceil(x) at every multiple, and
        otherwise below it by at most 2 temperature + (temperature / u)^2. However small the extent, at least
        1 / (1 + temperature), not x: there is no less than one tile, and 2 folds - 1 is never negative.
    Gradient: continuous. 1 by x at every multiple of temperature > 0, steep (at most about 1 / temperature) just above it
        and small further on. At temperature 0 it is 0 by everything: right between multiples, at multiples the one from
        below. By the temperature at 0: 0, though the function falls from there.
    Departs: a sum of sigmoids, the usual relaxation, is half a tile short at every multiple, where sizes mostly lie.
    """
    a, b, temperature = as_arrays(numerator, denominator, temperature)
    tiles = _tiles(a, b)
    left, used = _not_negative((tiles * b - a) / b), _not_negative((a - (tiles - 1.0) * b) / b)

    smooth = temperature > jnp.finfo(temperature.dtype).tiny
    # Where the smooth form is not used it is fed a number at which its gradient is finite: NaN times 0 would be NaN.
    t = jnp.where(smooth, temperature, 1.0)
    rise, bend = _share_of(used, t, 2), _share_of(left, t, 1)
    gap = left * jnp.where(tiles > 1.0, 1.0 - (1.0 - t) * rise * bend, 1.0 - bend)
    return tiles - jnp.where(smooth, gap, 0.0)


def smooth_folds(extent: Number, tile: Number, temperature: Number = 0.0) -> Float[Array, "*b"]:
    """Number of tiles that cover an extent, smoothed by a share of itself, as `smooth_maximum` is: for sizes that are climbed.

    `smooth_ceil_div` at the temperature 1 - (1 - temperature)^n on the step behind n >= 1 whole tiles. Where few tiles cover
    the extent they stay steps, each of which is a large part of the count. Where there are many, one more or less is within
    the temperature, and the count is nearly the quotient: its slope is that of the steps' mean everywhere.

    Args:
        extent, tile, temperature: as of `smooth_ceil_div`.
    Returns:
        "*b", as of `smooth_ceil_div`: equal to the exact count at every multiple, where both meet, and at temperature 0.
    Gradient: as of `smooth_ceil_div`, continuous; above 1 / temperature tiles, of order 1 by the quotient everywhere.
    """
    a, b, temperature = as_arrays(extent, tile, temperature)
    whole = jnp.maximum(_tiles(a, b) - 1.0, 1.0)
    return smooth_ceil_div(a, b, jnp.maximum(temperature, 1.0 - (1.0 - temperature) ** whole))


def _tiles(a: Float[Array, "*#b"], b: Float[Array, "*#b"]) -> Float[Array, "*b"]:
    """The exact count, constant to the gradient.

    A quotient may come out an ulp off its integer (XLA multiplies by the inverse of a constant); products do not.
    """
    tiles = jnp.ceil(a / b)
    tiles = jnp.where((tiles - 1.0) * b >= a, tiles - 1.0, tiles)
    return jax.lax.stop_gradient(jnp.where(tiles * b < a, tiles + 1.0, tiles))


def _not_negative(share: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """Takes away what rounding may put below 0; a maximum would halve the gradient where the share is 0."""
    return share + jax.lax.stop_gradient(jnp.maximum(share, 0.0) - share)


def _share_of(one: Float[Array, "*#b"], other: Float[Array, "*#b"], power: int) -> Float[Array, "*b"]:
    """one^p / (one^p + other^p), both >= 0 and not both 0, without the powers of small numbers underflowing."""
    # The share has no scale, so a constant one may be taken out.
    scale = jax.lax.stop_gradient(jnp.maximum(one, other))
    one, other = (one / scale) ** power, (other / scale) ** power
    return one / (one + other)
