"""Roofline time of an operator: the slower of computing and moving, with a smooth maximum for gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.device import Device
from hwmodels.operators import OperatorWork
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
    smooth = (temperature > 0) & (scale > 0)
    temperature, scale = jnp.where(smooth, temperature, 1.0), jnp.where(smooth, scale, 1.0)
    ratios = jnp.where(smooth[..., None], values / scale[..., None], 1.0)
    norm = jnp.sum(ratios ** (1.0 / temperature)[..., None], axis=-1) ** temperature
    return jnp.where(smooth, scale * norm, exact)


def compute_time(device: Device, work: OperatorWork) -> Float[Array, "... operator"]:
    """Seconds to execute each operator's FLOPs at the rate that the device reaches."""
    rate_flops_per_s = as_float(device.peak_flops_per_s) * as_float(device.compute_efficiency)
    return work.flops / jnp.asarray(rate_flops_per_s)[..., None]


def memory_time(device: Device, work: OperatorWork) -> Float[Array, "... operator"]:
    """Seconds to move each operator's bytes, each of them once, at the bandwidth that the memory reaches."""
    rate_bytes_per_s = as_float(device.memory.bandwidth_bytes_per_s) * as_float(device.memory.efficiency)
    return work.memory_bytes / jnp.asarray(rate_bytes_per_s)[..., None]


def operator_time(device: Device, work: OperatorWork, *, temperature: Number = 0.0) -> Float[Array, "... operator"]:
    """Seconds of each operator: computing and moving overlap fully, launches do not.

    Args:
        device: leaves "*b".
        work: "*b operator".
        temperature: one number in [0, 1], of the smooth maximum.
    Returns:
        "*b operator", s; 0 for an operator that neither computes nor moves anything.
    Gradient: kink where computing takes as long as moving, at temperature 0; see `smooth_maximum`.
    Source: Williams, Waterman, Patterson 2009, doi:10.1145/1498765.1498785, per operator instead of per program.
    Departs: a fixed latency per launch is added.
    """
    times = jnp.stack(jnp.broadcast_arrays(compute_time(device, work), memory_time(device, work)), axis=-1)
    busy = smooth_maximum(times, temperature)
    latency_s = jnp.asarray(as_float(device.operator_latency_s))[..., None] * work.launches
    return busy + jnp.where(busy > 0, latency_s, 0.0)
