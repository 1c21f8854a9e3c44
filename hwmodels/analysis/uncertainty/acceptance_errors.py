"""Sampling errors of counted acceptance."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.numerics.scalars import Number, as_float

__all__ = ["conditional_errors"]


def conditional_errors(
    conditional: Float[Array | np.ndarray, "*b position"], cycles: Number
) -> Float[Array, "*b position"]:
    """Standard error of each conditional acceptance that was counted over draft-verify cycles.

    Args:
        conditional: "*b position", in [0, 1]; accepted over reached, at each position.
        cycles: "*b", > 0; position 1 is reached in each of them, a later one where all before it were accepted.
    Returns:
        "*b position", > 0 at 0 and 1 too: the standard deviation of the Beta posterior of Jeffreys' prior, near
        sqrt(p (1 - p) / reached) in between.
    Source: Brown, Cai, DasGupta 2001, doi:10.1214/ss/1009213286, Sec. 3.
    Departs: cycles are taken as independent; those of one text are not quite.
    """
    chance = jnp.asarray(as_float(conditional))
    before = jnp.concatenate([jnp.ones_like(chance[..., :1]), jnp.cumprod(chance, axis=-1)[..., :-1]], axis=-1)
    reached = before * jnp.asarray(as_float(cycles))[..., None]
    accepted, refused = chance * reached + 0.5, (1.0 - chance) * reached + 0.5
    total = accepted + refused
    return jnp.sqrt(accepted * refused / (total**2 * (total + 1.0)))
