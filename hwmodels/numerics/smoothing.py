"""A maximum without a kink and without a scale, for gradients."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from hwmodels.numerics.gradients import share_cotangent
from hwmodels.numerics.scalars import Number, as_float, with_rank

#: Highest power of a p-norm that is taken by multiplying.
_MOST_PRODUCTS = 64


def smooth_maximum(values: Float[Array, "... n"], temperature: Number = 0.0) -> Float[Array, "*b"]:
    """Maximum over the last axis, smoothed without a scale: the p-norm at p = 1 / temperature.

    Homogeneous of degree 1 (twice the values, twice the result), which a log-sum-exp is not. Exceeds the maximum by a
    factor of at most n ** temperature; at temperature 1 it is the sum.

    Args:
        values: "*b n", >= 0, any unit.
        temperature: "*b" or one number, in [0, 1]; 0 is the exact maximum. May be traced; a Python number whose inverse is
            whole, as 0.25, is faster.
    Returns:
        "*b", in the unit of `values`.
    Gradient: at temperature 0, entries that share the maximum share the gradient equally (a subgradient), as they do in
        the limit; also where all values are zero. By the temperature: 0 at temperature 0, right unless entries tie.
    """
    values = jnp.asarray(as_float(values))
    power = _whole_power(temperature)
    temperature = jnp.asarray(as_float(temperature), values.dtype)
    values = share_cotangent(with_rank(values, temperature.ndim + 1))
    temperature = jnp.broadcast_to(temperature, jnp.broadcast_shapes(temperature.shape, values.shape[:-1]))
    return _p_norm(jnp.unstack(values, axis=-1), temperature, power)


def smooth_largest(*values: Number, temperature: Number = 0.0) -> Float[Array, "*b"]:
    """`smooth_maximum` over several arrays.

    Args:
        values: each "*b", of shapes that broadcast, >= 0, any unit.
        temperature: as of `smooth_maximum`.
    """
    return smooth_maximum(jnp.stack(jnp.broadcast_arrays(*values), axis=-1), temperature)


def wider_temperature(one: Number, other: float) -> Number:
    """The higher of two temperatures of `smooth_maximum`; of two Python numbers a Python number, which it is faster with.

    Args:
        one: "*b" or one number, in [0, 1].
        other: static, in [0, 1].
    """
    return (max if isinstance(one, (int, float)) else jnp.maximum)(as_float(one), other)


class _Parts(NamedTuple):
    """What both the norm and its slope need; powers are taken once."""

    norm: Float[Array, "*b"]
    smooth: Float[Array, "*b"]  # whether the smooth form is used
    root: Float[Array, "*b"]  # norm over the largest value
    ratios: list[Float[Array, "*b"]]  # of each value to the largest one
    shares: list[Float[Array, "*b"]]  # of each value in the sum of powers
    total: Float[Array, "*b"]  # of powers of ratios


def _whole_power(temperature: Number) -> int | None:
    """1 / temperature where that is a whole number known beforehand: products and square roots make its powers and roots."""
    if not isinstance(temperature, (int, float)) or not 1.0 / _MOST_PRODUCTS <= temperature <= 1.0:
        return None
    power = round(1.0 / temperature)
    return power if math.isclose(power * temperature, 1.0, rel_tol=1e-12) else None


def _root(total: Array, temperature: Array, power: int | None) -> Array:
    """total ** temperature, by square roots where they do."""
    if power is None or power.bit_count() > 1:
        return total**temperature
    for _ in range(power.bit_length() - 1):
        total = jnp.sqrt(total)
    return total


def _parts(values: tuple[Array, ...], temperature: Array, power: int | None) -> _Parts:
    exact = functools.reduce(jnp.maximum, values)
    # Below the rounding unit the two differ by less than rounding does, and a ratio that should be 1 and is an ulp less
    # would vanish when it is raised to 1 / temperature.
    smooth = (temperature > jnp.finfo(exact.dtype).eps) & (exact > 0)
    # Where the smooth form is not used it is fed numbers at which everything is finite: NaN times 0 would be NaN.
    t, scale = jnp.where(smooth, temperature, 1.0), jnp.where(smooth, exact, 1.0)
    ratios = [jnp.where(smooth, value / scale, 1.0) for value in values]
    powers = [ratio ** (1.0 / t) if power is None else jax.lax.integer_pow(ratio, power) for ratio in ratios]
    total = functools.reduce(jnp.add, powers)
    root = _root(total, t, power)
    return _Parts(
        jnp.where(smooth, scale * root, exact), smooth, root, ratios, [each / total for each in powers], total
    )


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def _p_norm(values: tuple[Array, ...], temperature: Array, power: int | None) -> Array:
    return _parts(values, temperature, power).norm


def _p_norm_slope(
    power: int | None, primals: tuple[tuple[Array, ...], Array], tangents: tuple[tuple[Array, ...], Array]
) -> tuple[Array, Array]:
    """The slope from the powers that the norm needed anyway: half the time of differentiating them."""
    values, temperature = primals
    values_dot, temperature_dot = tangents
    parts = _parts(values, temperature, power)
    exact = functools.reduce(jnp.maximum, values)
    # A compiler may compute a value twice and round it otherwise: the largest would tie with none, and share no slope.
    nearly = exact * (1.0 - 4.0 * jnp.finfo(exact.dtype).eps)
    ties = [(value >= nearly).astype(value.dtype) for value in values]
    tied = functools.reduce(jnp.add, ties)
    # d norm / d value = root * share / ratio. At ratio 0 the limit is 0, and 1 where the norm is the sum.
    at_zero = (temperature >= 1.0).astype(exact.dtype)
    slope, positive = jnp.zeros_like(exact), [ratio > 0 for ratio in parts.ratios]
    for value_dot, tie, ratio, share, some in zip(values_dot, ties, parts.ratios, parts.shares, positive, strict=True):
        if isinstance(value_dot, SymbolicZero):
            continue
        smooth = parts.root * jnp.where(some, share / jnp.where(some, ratio, 1.0), at_zero)
        slope = slope + jnp.where(parts.smooth, smooth, tie / tied) * value_dot
    if isinstance(temperature_dot, SymbolicZero):  # as a rule: nobody differentiates by it
        return parts.norm, slope
    # d log norm / d temperature = log total - sum of share * log ratio / temperature.
    logs = [
        share * jnp.where(some, jnp.log(jnp.where(some, ratio, 1.0)), 0.0)
        for share, ratio, some in zip(parts.shares, parts.ratios, positive, strict=True)
    ]
    t = jnp.where(parts.smooth, temperature, 1.0)
    by_log = jnp.log(parts.total) - functools.reduce(jnp.add, logs) / t
    by_temperature = jnp.where(parts.smooth, parts.norm * by_log, 0.0)
    return parts.norm, slope + by_temperature * temperature_dot


_p_norm.defjvp(_p_norm_slope, symbolic_zeros=True)
