"""Intervals of results whose inputs err: the delta method on logarithms.

A result that is positive and smooth in its inputs is nearly log-normal where the inputs' errors are normal and small. Its
logarithm's slopes along each independent error come from `jax.jvp`, or from `jax.vjp` where results are fewer than errors.
Source: Oehlert 1992, doi:10.1080/00031305.1992.10475842, Eq. 1, on the logarithm of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

from hwmodels.numerics.exact_products import exact_matmul
from hwmodels.numerics.scalars import Number, as_float

__all__ = ["COVERAGE", "LogNormal", "delta_method", "probability_above"]

#: Probability that an interval is to cover the true number with.
COVERAGE = 0.90


@flax.struct.dataclass
class LogNormal:
    """A positive number and its error; leaves "*b"."""

    value: Float[Array, "*b"]  # the median
    log_deviation: Float[Array, "*b"]  # standard deviation of the logarithm, >= 0

    def ends(self, coverage: float = COVERAGE) -> tuple[Float[Array, "*b"], Float[Array, "*b"]]:
        """Low and high end of the central interval; `coverage` is static, in (0, 1)."""
        reach = jnp.exp(NormalDist().inv_cdf(0.5 + coverage / 2.0) * self.log_deviation)
        return self.value / reach, self.value * reach


def delta_method(
    metrics: Callable[[Float[Array, " source"]], Any],
    sources: int,
    *,
    variance: Float[Array, " source"] | None = None,
    shared: Float[Array, "source cause"] | None = None,
) -> Any:
    """Results with the errors that they inherit.

    Args:
        metrics: from errors, " source", normal, 0 at the estimates, to positive numbers "*b" in any form; pure,
            differentiable at 0.
        sources: static, >= 0.
        variance: of each source's own error, which is independent of the others; None: 1.
        shared: how much each source errs for every cause that several of them share, causes being independent and standard
            normal; None: they share none.
    Returns:
        in the form of `metrics`, each number a `LogNormal`.
    Gradient: that of the slopes.
    """
    estimates = jnp.zeros(sources)
    values = metrics(estimates)
    if not sources:
        return jax.tree.map(lambda value: LogNormal(value, jnp.zeros_like(value)), values)
    results = sum(leaf.size for leaf in jax.tree.leaves(values))
    slopes = (jax.jacfwd if sources < results else jax.jacrev)(lambda at: jax.tree.map(jnp.log, metrics(at)))(estimates)

    def inherited(value: Array, each: Array) -> LogNormal:
        own = exact_matmul(each**2, jnp.ones(sources) if variance is None else variance)
        together = 0.0 if shared is None else jnp.sum(exact_matmul(each, shared) ** 2, axis=-1)
        return LogNormal(value, jnp.sqrt(own + together))

    return jax.tree.map(inherited, values, slopes)


def probability_above(number: LogNormal, bar: Number = 1.0) -> Float[Array, "*b"]:
    """Probability that the true number lies above `bar` ("*b", > 0); 0, 1/2 or 1 where there is no error."""
    distance = jnp.log(number.value) - jnp.log(as_float(bar))
    sure = jnp.heaviside(distance, 0.5)
    none = number.log_deviation <= 0
    return jnp.where(none, sure, ndtr(distance / jnp.where(none, 1.0, number.log_deviation)))
