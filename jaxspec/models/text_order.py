"""Attention whose sums run in the order of the text, wherever keys and values lie.

In a verification a token's own path lies among the nodes of a tree; once committed, it lies in the cache. Sums of floats depend
on their order, so that without speculation the same token would get other last bits, one of them would sooner or later turn the
rounding of a key or value, and a near tie would be decided otherwise. Therefore a query's nearest tokens are told apart from
those far before it by their distance alone, and stand in the order of that distance in every sum.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

__all__ = ["TextOrder", "text_order"]


class TextOrder(NamedTuple):
    """Where the near tokens of each query lie, among the columns of their sources side by side.

    Attributes:
        column: of the token at each place, the query itself at the last.
        known: whether there is one.
    """

    column: Int[Array, "batch token place"]
    known: Bool[Array, "batch token place"]

    def scores(self, scores: Float[Array, "batch kv_head group token column"]) -> Array:
        """Scores by place, the least number where there is no token."""
        found = jnp.take_along_axis(scores, self.column[:, None, None], axis=-1)
        return jnp.where(self.known[:, None, None], found, jnp.finfo(scores.dtype).min)

    def weighted(
        self,
        weights: Float[Array, "batch kv_head group token place"],
        values: Float[Array, "batch kv_head column value_dim"],
    ) -> Float[Array, "batch kv_head group token value_dim"]:
        """Sums of the values at all places.

        A product over columns, with zeros between them, would be no such sum: its kernel chooses an order by where they lie.
        """
        by_place = jax.vmap(lambda values, column: values[:, column])(values, self.column)
        return jnp.sum(weights[..., None] * by_place[:, :, None], axis=-2)


def text_order(
    positions: Int[Array, "batch token"],
    of_columns: Int[Array, "batch column"],
    seen: Bool[Array, "batch token column"],
    places: int,
) -> TextOrder:
    """The order of the `places` tokens that end with each query.

    Args:
        positions: of the queries. of_columns: positions of what they may see.
        seen: columns that a query sees: one of a position at most.
    """
    before = positions[:, :, None, None] - of_columns[:, None, None, :]
    at = seen[:, :, None, :] & (before == places - 1 - jnp.arange(places)[None, None, :, None])
    return TextOrder(jnp.argmax(at, axis=-1), jnp.any(at, axis=-1))
