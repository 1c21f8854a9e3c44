"""A maximum without a kink and without a scale, for gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.scalars import Number, as_float


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
    values, temperature = jnp.asarray(as_float(values)), jnp.asarray(as_float(temperature))
    exact = jnp.max(values, axis=-1)
    # The p-norm does not depend on the scale taken out of it, so the scale may be a constant to the gradient.
    scale = jax.lax.stop_gradient(exact)
    # Where the smooth form is not used it is fed numbers at which its gradient is finite: NaN times 0 would be NaN.
    # Below the rounding unit the two differ by less than rounding does, and a ratio that should be 1 and is an ulp less
    # would vanish when it is raised to 1 / temperature.
    smooth = (temperature > jnp.finfo(exact.dtype).eps) & (scale > 0)
    temperature, scale = jnp.where(smooth, temperature, 1.0), jnp.where(smooth, scale, 1.0)
    ratios = jnp.where(smooth[..., None], values / scale[..., None], 1.0)
    norm = jnp.sum(ratios ** (1.0 / temperature)[..., None], axis=-1) ** temperature
    return jnp.where(smooth, scale * norm, exact)
