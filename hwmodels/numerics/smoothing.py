"""A maximum without a kink and without a scale, for gradients."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from hwmodels.numerics.axes import with_rank
from hwmodels.numerics.gradients import cotangent_once
from hwmodels.numerics.scalars import Number, as_float


def smooth_maximum(values: Float[Array, "... n"], temperature: Number = 0.0) -> Float[Array, "*b"]:
    """Maximum over the last axis, smoothed without a scale: the p-norm at p = 1 / temperature.

    Homogeneous of degree 1 (twice the values, twice the result), which a log-sum-exp is not. Exceeds the maximum by a
    factor of at most n ** temperature; at temperature 1 it is the sum.

    Args:
        values: "*b n", >= 0, any unit.
        temperature: "*b" or one number, in [0, 1]; 0 is the exact maximum. May be traced.
    Returns:
        "*b", in the unit of `values`.
    Gradient: at temperature 0, entries that share the maximum share the gradient equally (a subgradient), as they do in
        the limit; also where all values are zero. By the temperature: 0 at temperature 0, right unless entries tie.
    """
    values = jnp.asarray(as_float(values))
    temperature = jnp.asarray(as_float(temperature), values.dtype)
    values = cotangent_once(with_rank(values, temperature.ndim + 1))
    return _p_norm(values, jnp.broadcast_to(temperature, jnp.broadcast_shapes(temperature.shape, values.shape[:-1])))


class _Parts(NamedTuple):
    """What both the norm and its slope need; powers are taken once."""

    norm: Float[Array, "*b"]
    smooth: Float[Array, "*b"]  # whether the smooth form is used
    root: Float[Array, "*b"]  # norm over the largest value
    ratios: Float[Array, "*b n"]  # to the largest value
    shares: Float[Array, "*b n"]  # of the sum of powers
    total: Float[Array, "*b"]  # of powers of ratios


def _parts(values: Array, temperature: Array) -> _Parts:
    exact = jnp.max(values, axis=-1)
    # Below the rounding unit the two differ by less than rounding does, and a ratio that should be 1 and is an ulp less
    # would vanish when it is raised to 1 / temperature.
    smooth = (temperature > jnp.finfo(exact.dtype).eps) & (exact > 0)
    # Where the smooth form is not used it is fed numbers at which everything is finite: NaN times 0 would be NaN.
    t, scale = jnp.where(smooth, temperature, 1.0), jnp.where(smooth, exact, 1.0)
    ratios = jnp.where(smooth[..., None], values / scale[..., None], 1.0)
    powers = ratios ** (1.0 / t)[..., None]
    total = jnp.sum(powers, axis=-1)
    root = total**t
    return _Parts(jnp.where(smooth, scale * root, exact), smooth, root, ratios, powers / total[..., None], total)


@jax.custom_jvp
def _p_norm(values: Array, temperature: Array) -> Array:
    return _parts(values, temperature).norm


def _p_norm_slope(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    """The slope from the powers that the norm needed anyway: half the time of differentiating them."""
    values, temperature = primals
    values_dot, temperature_dot = tangents
    if isinstance(values_dot, SymbolicZero):
        values_dot = jnp.zeros_like(values)
    found = _parts(values, temperature)
    # d norm / d value = root * share / ratio. At ratio 0 the limit is 0, and 1 where the norm is the sum.
    positive = found.ratios > 0
    at_zero = (temperature >= 1.0)[..., None].astype(values.dtype)
    slope = jnp.where(positive, found.shares / jnp.where(positive, found.ratios, 1.0), at_zero)
    ties = (values == jnp.max(values, axis=-1, keepdims=True)).astype(values.dtype)
    even = ties / jnp.sum(ties, axis=-1, keepdims=True)
    by_value = jnp.where(found.smooth[..., None], found.root[..., None] * slope, even)
    slope_by_values = jnp.sum(by_value * values_dot, axis=-1)
    if isinstance(temperature_dot, SymbolicZero):  # as a rule: nobody differentiates by it
        return found.norm, slope_by_values
    # d log norm / d temperature = log total - sum of share * log ratio / temperature.
    logs = jnp.where(positive, jnp.log(jnp.where(positive, found.ratios, 1.0)), 0.0)
    t = jnp.where(found.smooth, temperature, 1.0)
    by_log = jnp.log(found.total) - jnp.sum(found.shares * logs, axis=-1) / t
    by_temperature = jnp.where(found.smooth, found.norm * by_log, 0.0)
    return found.norm, slope_by_values + by_temperature * temperature_dot


_p_norm.defjvp(_p_norm_slope, symbolic_zeros=True)
