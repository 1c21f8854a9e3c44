"""Requests: when they come, how long their prompts are, and how much is generated for each."""

from __future__ import annotations

import dataclasses

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from hwmodels.numerics.scalars import Number, as_float

__all__ = ["Requests", "drawn_lengths", "poisson_requests", "with_rate"]


@flax.struct.dataclass
class Requests:
    """Requests in the order in which they come."""

    arrival_s: Float[Array, "*b request"]  # increasing, the first >= 0
    prompt_tokens: Float[Array, "*b request"]  # whole, >= 1
    output_tokens: Float[Array, "*b request"]  # whole, >= 1


def drawn_lengths(key: PRNGKeyArray, count: int, mean: Number, variation: Number) -> Float[Array, " request"]:
    """Whole numbers of tokens, lognormal about a mean.

    Args:
        count: static.
        mean: one number, >= 1.
        variation: one number, >= 0; standard deviation over mean. 0: all alike.
    Returns:
        "request", >= 1.
    """
    variance = jnp.log1p(jnp.asarray(as_float(variation)) ** 2)
    normal = jax.random.normal(key, (count,))
    drawn = as_float(mean) * jnp.exp(jnp.sqrt(variance) * normal - variance / 2.0)
    return jnp.maximum(jnp.round(drawn), 1.0)


def poisson_requests(
    key: PRNGKeyArray,
    count: int,
    *,
    rate_per_s: Number,
    prompt_tokens: Number,
    output_tokens: Number,
    prompt_variation: Number = 0.0,
    output_variation: Number = 0.0,
) -> Requests:
    """Requests of a Poisson process.

    Args:
        count: static; requests.
        rate_per_s: one number, > 0; the same draws at another rate are the same requests, closer together.
        prompt_tokens, output_tokens, prompt_variation, output_variation: see `drawn_lengths`.
    """
    gaps, prompts, outputs = jax.random.split(key, 3)
    return Requests(
        arrival_s=jnp.cumsum(jax.random.exponential(gaps, (count,))) / as_float(rate_per_s),
        prompt_tokens=drawn_lengths(prompts, count, prompt_tokens, prompt_variation),
        output_tokens=drawn_lengths(outputs, count, output_tokens, output_variation),
    )


def with_rate(requests: Requests, rate_per_s: Number) -> Requests:
    """The same requests, closer together or farther apart, so that as many come in a second on average."""
    arrival = requests.arrival_s
    span_s = jnp.maximum(arrival[..., -1:] - arrival[..., :1], jnp.finfo(arrival.dtype).tiny)
    mean_rate = (arrival.shape[-1] - 1) / span_s
    scaled = (arrival - arrival[..., :1]) * mean_rate / as_float(rate_per_s)
    return dataclasses.replace(requests, arrival_s=scaled)
