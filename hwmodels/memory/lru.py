"""Which items an LRU cache holds, by its characteristic time, and which items top-k draws choose.

An item stays in the cache if it is requested again within the characteristic time T, the same for all items, at which the
expected size of the items requested so far fills the cache: sum of size_i * (1 - exp(-popularity_i * T)) = capacity. Requests
are taken to be independent of each other. Those of a router are not quite: what it prefers for one text shows up here only if
the popularity is that of the text.

Top-k draws without replacement obey the same equation. If item i rings after an exponential time of rate popularity_i, the
first k that ring are a draw, one item after the other, in proportion to the popularity of those left; with the time of the
k-th ring replaced by the t at which k are expected to have rung, item i is among them with 1 - exp(-popularity_i * t).

Source: Che, Tung, Wang 2002, "Hierarchical web caching systems: modeling, design and experimental results"; Fricker, Robert,
    Roberts 2012, arXiv:1202.3974, for power laws; Rosén 1997, "On sampling with probability proportional to size", for draws.
"""

from __future__ import annotations

from typing import TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.numerics.scalars import Number, as_arrays, as_float

__all__ = ["inclusion_probability", "residency", "zipf_popularity"]

ItemArray: TypeAlias = Float[Array, "... item"]

#: Rate of items that are never requested, in parts of the mean: they have room only when all others do.
_NEVER = 1e-12
#: Characteristic times of the rarest item that stand for infinity.
_FOREVER = 1e6
#: A bound for Newton's method, which takes 1 to 25 steps.
_MOST_STEPS = 200


def zipf_popularity(exponent: Number, shift: Number = 0.0, *, num_items: int) -> ItemArray:
    """Shares of requests that fall with the rank: p_i in proportion to (i + shift) ** -exponent, i = 1, 2, ...

    Args:
        exponent: "*b"; 0 is uniform.
        shift: "*b", > -1; larger ones flatten the head.
        num_items: static int >= 1.
    Returns:
        "*b item", sums to 1.
    Raises:
        ValueError: num_items < 1.
    """
    if num_items < 1:
        raise ValueError(f"num_items is {num_items}; it must be >= 1")
    exponent, shift = (jnp.asarray(as_float(value))[..., None] for value in (exponent, shift))
    ranks = jnp.arange(1, num_items + 1, dtype=jnp.result_type(exponent, shift))
    exponent, shift, ranks = as_arrays(exponent, shift, ranks)
    return jax.nn.softmax(-exponent * jnp.log(ranks + shift), axis=-1)


def residency(popularity: ItemArray, capacity: Number, *, item_sizes: Number = 1.0) -> ItemArray:
    """P(item is in the cache) at a random moment, and thus P(hit | item is requested).

    Args:
        popularity: "*b item", >= 0, of any sum; how often each item is requested. One that never is has room only when all
            others do.
        capacity: "*b", in the unit of the sizes: bytes, or items while all sizes are 1. Below 0 counts as 0.
        item_sizes: "*b item" or one number, > 0.
    Returns:
        "*b item", in [0, 1]; sizes times residency sum to the capacity, as long as not everything fits.
    Gradient: by the implicit function theorem, higher ones too; at no capacity and where just everything fits the one from
        the inside, 0 beyond.
    Source: Che, Tung, Wang 2002; Fricker, Robert, Roberts 2012, arXiv:1202.3974.
    Departs: a cache keeps whole items, so that sizes that differ leave a hole of part of an item, which is not counted.
    """
    _, rates, sizes, capacity = _prepare(popularity, capacity, item_sizes)
    return _residency(rates, sizes, capacity)


def inclusion_probability(popularity: ItemArray, draws: Number) -> ItemArray:
    """P(item is among `draws` different ones), drawn one after the other in proportion to the popularity of those left.

    Args:
        popularity: "*b item", see `residency`.
        draws: "*b", in [0, number of items]; the k of a top-k router.
    Returns:
        "*b item", in [0, 1], sums to `draws`.
    Source: Rosén 1997: order sampling.
    Departs: an approximation, exact for equal popularity and for as many draws as items. For power laws of exponent up to 1
        it is off by at most 0.031 for 1 item out of 8, 0.025 for 2 out of 8 or 16, 0.01 for 6 or more out of 64 or more.
        For a single draw use the shares themselves, which are exact.
    """
    return residency(popularity, draws)


def _prepare(
    popularity: ItemArray, capacity: Number, item_sizes: Number
) -> tuple[ItemArray, ItemArray, ItemArray, Float[Array, ...]]:
    """Shares, which sum to 1, rates, which are above 0, and sizes "*b item", and a capacity "*b" within the range."""
    popularity, capacity, sizes = (jnp.asarray(as_float(value)) for value in (popularity, capacity, item_sizes))
    if popularity.ndim == 0 or popularity.shape[-1] == 0:
        raise ValueError(f"popularity has shape {popularity.shape}; it needs a last axis of >= 1 items")
    dtype = jnp.result_type(popularity, capacity, sizes)
    shape = jnp.broadcast_shapes(popularity.shape, (*capacity.shape, 1), sizes.shape)
    shares = popularity / jnp.sum(popularity, axis=-1, keepdims=True)
    shares, sizes = (jnp.broadcast_to(value, shape).astype(dtype) for value in (shares, sizes))
    capacity = jnp.broadcast_to(capacity, shape[:-1]).astype(dtype)
    total = jnp.sum(sizes, axis=-1)
    # Not `clip`, which halves the gradient at the ends.
    capacity = jnp.where(capacity < 0, 0.0, jnp.where(capacity > total, total, capacity))
    return shares, shares + _NEVER / shape[-1], sizes, capacity


@jax.jit  # or each call outside of a jit would compile the loop anew
def _solve(rates: ItemArray, sizes: ItemArray, capacity: Float[Array, ...]) -> Float[Array, ...]:
    """The time at which the items requested fill the capacity, which lies between 0 and the sum of the sizes.

    Newton's method: the filled size is concave in time, so that from a time that is too short it never overshoots.
    """
    total = jnp.sum(sizes, axis=-1)
    tolerance = 4 * jnp.finfo(capacity.dtype).eps

    def advance(state):
        time, _, steps = state
        exponents = -rates * time[..., None]
        absent = sizes * jnp.exp(exponents)
        # What is filled and what is not, each accurate where the other cancels.
        missing = jnp.where(
            capacity > total / 2,
            jnp.sum(absent, axis=-1) - (total - capacity),
            capacity + jnp.sum(sizes * jnp.expm1(exponents), axis=-1),
        )
        step = missing / jnp.sum(rates * absent, axis=-1)
        return time + jnp.maximum(step, 0.0), jnp.any(step > tolerance * time), steps + 1

    # No more can be requested than one item after another.
    start = capacity / jnp.sum(rates * sizes, axis=-1)
    return jax.lax.while_loop(lambda state: state[1] & (state[2] < _MOST_STEPS), advance, (start, True, 0))[0]


@jax.custom_jvp
def _time(rates: ItemArray, sizes: ItemArray, capacity: Float[Array, ...]) -> Float[Array, ...]:
    """The characteristic time, finite even where everything fits."""
    total = jnp.sum(sizes, axis=-1)
    full, empty = capacity >= total, capacity <= 0
    time = _solve(rates, sizes, jnp.where(full | empty, total / 2, capacity))
    return jnp.where(full, _FOREVER / jnp.min(rates, axis=-1), jnp.where(empty, 0.0, time))


@_time.defjvp
def _time_jvp(primals, tangents):
    rates, sizes, capacity = primals
    time = _time(rates, sizes, capacity)
    full = capacity >= jnp.sum(sizes, axis=-1)
    slope = jnp.sum(sizes * rates * jnp.exp(-rates * time[..., None]), axis=-1)
    change = _unfilled(primals, tangents, time)
    return time, jnp.where(full, 0.0, change / jnp.where(full, 1.0, slope))


@jax.custom_jvp
def _residency(rates: ItemArray, sizes: ItemArray, capacity: Float[Array, ...]) -> ItemArray:
    # Not differentiated through the time: where everything fits it is infinite, while this has a finite gradient.
    return -jnp.expm1(-rates * _time(rates, sizes, capacity)[..., None])


@_residency.defjvp
def _residency_jvp(primals, tangents):
    rates, sizes, capacity = primals
    time = _time(rates, sizes, capacity)[..., None]
    exponents = -rates * time
    # How much of the room that opens each item takes, over its size; both sums scaled against underflow at long times.
    scaled = rates * jnp.exp(exponents - jax.lax.stop_gradient(jnp.max(exponents, axis=-1, keepdims=True)))
    gain = scaled / jnp.sum(sizes * scaled, axis=-1, keepdims=True)
    direct = time * jnp.exp(exponents) * tangents[0]
    return -jnp.expm1(exponents), direct + gain * _unfilled(primals, tangents, time[..., 0])[..., None]


def _unfilled(primals, tangents, time: Float[Array, ...]) -> Float[Array, ...]:
    """Capacity that a change of everything opens at a fixed time, to first order."""
    rates, sizes, _ = primals
    exponents = -rates * time[..., None]
    filled = sizes * time[..., None] * jnp.exp(exponents) * tangents[0] - jnp.expm1(exponents) * tangents[1]
    return tangents[2] - jnp.sum(filled, axis=-1)
